"""Download CIFAR: checked by SHA-256, extracted whole or not at all."""

import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pooch
import requests

from regun.data.cifar import CifarClasses, CifarFiles, cifar_files
from regun.data.examples import ProgressCallback
from regun.errors import DataError

CHUNK = 2**18
"""Bytes between two calls of the progress callback."""
TIMEOUT = 60.0
"""Seconds without a byte after which a download fails."""
CIFAR_ARCHIVES = {
    "cifar-10-batches-py": (
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "cifar-100-python": (
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
}


def download(url: str, target: Path, sha256: str, on_progress: ProgressCallback | None = None) -> Path:
    """Download `url` to `target` unless it is there, and return `target`; it appears only if its SHA-256 is right."""
    pooch.get_logger().setLevel("WARNING")  # it would print each download

    def stream(url: str, output: str, _: object) -> None:
        with requests.get(url, stream=True, timeout=TIMEOUT) as response, Path(output).open("wb") as file:
            response.raise_for_status()
            done, total = 0, int(response.headers.get("Content-Length", 0))
            for chunk in response.iter_content(CHUNK):
                file.write(chunk)
                done += len(chunk)
                if on_progress is not None:
                    on_progress(done, total)

    try:
        pooch.retrieve(url, f"sha256:{sha256}", target.name, target.parent, downloader=cast(Any, stream))
    except (OSError, ValueError) as error:  # the network, the server, the disk; a wrong address or digest
        raise DataError(
            f"cannot download {url} to {target}: {error}. Check the address, the network and the disk, then try again."
        ) from error
    return target


def fetch_cifar(root: Path | str, classes: CifarClasses, on_progress: ProgressCallback | None = None) -> Path:
    """Return the folder of a CIFAR data set: `root`, or one below `root`, where it is downloaded if missing.

    Example: `fetch_cifar("data", 10)` makes `data/cifar-10-batches-py`.
    """
    root, files = Path(root), cifar_files(classes)
    if all((root / name).is_file() for name in files.required):
        return root
    folder = root / files.folder
    if folder.exists():
        missing = [name for name in files.required if not (folder / name).is_file()]
        if missing:
            raise DataError(f"{folder} lacks {', '.join(missing)}. Remove the folder and try again.")
        return folder
    url, sha256 = CIFAR_ARCHIVES[files.folder]
    archive = download(url, root / f"{files.folder}.tar.gz", sha256, on_progress)
    extract(archive, folder, files)
    archive.unlink()
    return folder


def extract(archive: Path, folder: Path, files: CifarFiles) -> None:
    """Extract a CIFAR archive to a temporary neighbor of `folder`, then rename it: `folder` is complete or missing."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".extract-") as temporary:
            with tarfile.open(archive, "r:gz") as tar:
                members = tar.getmembers()
                for member in members:
                    parts = PurePosixPath(member.name).parts
                    inside = parts[:1] == (files.folder,) and ".." not in parts
                    if not inside or not (member.isdir() or member.isreg()):
                        raise DataError(
                            f"{archive} holds {member.name!r}, but only regular files below {files.folder}/ are "
                            "allowed. Nothing was extracted. Do not trust this archive; remove it."
                        )
                tar.extractall(temporary, members=[m for m in members if m.isreg()], filter="data")
            extracted = Path(temporary) / files.folder
            missing = [name for name in files.required if not (extracted / name).is_file()]
            if missing:
                raise DataError(f"{archive} lacks {', '.join(missing)}, so it is not a CIFAR archive. Remove it.")
            extracted.rename(folder)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"cannot extract {archive} to {folder}: {error}. Remove the archive and try again.") from error
