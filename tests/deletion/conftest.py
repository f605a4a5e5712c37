"""Requests that many tests look at: made once, copied where a test changes them."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from small_project import LENIENT, forget, ids


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        key = folder / f"{name}.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
        subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", folder / f"{name}.pub"], check=True)
    subprocess.run(["openssl", "genpkey", "-algorithm", "x25519", "-out", folder / "other.pem"], check=True)
    return folder


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Path:
    """Two accepted requests, the second one signed and with an unseen record; not to be changed."""
    out = tmp_path_factory.mktemp("original") / "out"
    forget(out, ids()[:20])
    forget(out, [*ids()[15:40], ids("val")[0]], replace(LENIENT, sign=keys / "ours.pem"))
    return out


@pytest.fixture
def out(original: Path, tmp_path: Path) -> Path:
    """A copy of `original`."""
    return Path(shutil.copytree(original, tmp_path / "out"))
