"""Downloads: against a real HTTP server on loopback that cuts connections and serves hostile archives."""

import hashlib
import io
import pickle
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expect import error
from regun.data.cifar import load_cifar
from regun.data.download import CIFAR_ARCHIVES, download, fetch_cifar
from regun.data.examples import InputPipeline
from regun.errors import DataError

BODY = np.random.default_rng(0).bytes(700_000)


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@dataclass
class Site:
    """One file on a server whose behavior a test may change between requests."""

    body: bytes = BODY
    address: str = ""
    cut_after: int | None = None
    chunked: bool = False
    status: int = 200
    requests: int = 0


class Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        site, body = self.site, self.site.body
        site.requests += 1
        if site.status != 200:
            self.send_error(site.status)
            return
        self.send_response(200)
        sent = body[: site.cut_after]
        if site.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            sent = f"{len(body):x}\r\n".encode() + sent + (b"\r\n0\r\n\r\n" if sent == body else b"")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"site": made}))
    made.address = f"http://127.0.0.1:{server.server_address[1]}/file"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_download_is_complete_and_reports_progress(site: Site, tmp_path: Path, chunked: bool, capfd) -> None:
    site.chunked = chunked  # without a length
    calls: list[tuple[int, int]] = []
    target = tmp_path / "deep" / "file"
    assert download(site.address, target, sha256(BODY), lambda *call: calls.append(call)) == target
    assert target.read_bytes() == BODY
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    done = [count for count, _ in calls]
    assert len(calls) > 2
    assert done == sorted(set(done))
    assert calls[-1] == (len(BODY), 0 if chunked else len(BODY))
    assert capfd.readouterr() == ("", "")


def test_a_file_with_the_right_digest_is_not_downloaded_again_and_another_is_replaced(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(BODY)
    download(site.address, tmp_path / "file", sha256(BODY))
    assert site.requests == 0
    (tmp_path / "file").write_bytes(b"old")
    assert download(site.address, tmp_path / "file", sha256(BODY)).read_bytes() == BODY


@pytest.mark.parametrize("chunked", [False, True])
def test_a_cut_connection_leaves_no_file(site: Site, tmp_path: Path, chunked: bool) -> None:
    site.chunked, site.cut_after = chunked, 300_000
    with error(DataError, site.address, "file"):
        download(site.address, tmp_path / "file", sha256(BODY))
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_digest_leaves_the_old_file(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with error(DataError, site.address, "0" * 64, sha256(BODY)):
        download(site.address, tmp_path / "file", "0" * 64)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_http_errors_unreachable_servers_and_other_protocols_are_errors(site: Site, tmp_path: Path) -> None:
    site.status = 404
    with error(DataError, site.address, 404):
        download(site.address, tmp_path / "file", sha256(BODY))
    for url in ("http://127.0.0.1:1/file", "file:///etc/passwd", "file"):
        with error(DataError, url):
            download(url, tmp_path / "file", sha256(BODY))
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_written_is_an_error(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with error(DataError, tmp_path / "file" / "below"):
        download(site.address, tmp_path / "file" / "below", sha256(BODY))


# ------------------------------------------------------------------------------------------------------- archives

FOLDER = "cifar-100-python"


def cifar_files() -> dict[str, bytes]:
    batch = {b"data": np.zeros((2, 3072), dtype=np.uint8), b"fine_labels": [3, 4]}
    names = {b"fine_label_names": [f"name{i}" for i in range(100)]}
    return {"train": pickle.dumps(batch), "test": pickle.dumps(batch), "meta": pickle.dumps(names)}


def archive(*extra: tarfile.TarInfo, leave_out: str = "") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        folder = tarfile.TarInfo(FOLDER)
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in cifar_files().items():
            if name != leave_out:
                member = tarfile.TarInfo(f"{FOLDER}/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        for member in extra:
            tar.addfile(member)
    return stream.getvalue()


def link(name: str, to: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, to
    return member


@pytest.fixture
def fetch(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, bytes], Path]:
    """`fetch_cifar(root, 100)` from a server that has `body`."""

    def fetch(root: Path, body: bytes) -> Path:
        site.body = body
        monkeypatch.setitem(CIFAR_ARCHIVES, "cifar-100-python", (site.address, sha256(body)))
        return fetch_cifar(root, 100)

    return fetch


def test_a_fetched_archive_can_be_loaded_and_is_fetched_once(site: Site, tmp_path: Path, fetch) -> None:
    folder = fetch(tmp_path / "data", archive())
    assert folder == tmp_path / "data" / FOLDER
    assert [p.name for p in (tmp_path / "data").iterdir()] == [FOLDER]
    pipeline = InputPipeline("p", (0.5,) * 3, (0.5,) * 3)
    assert load_cifar(tmp_path / "data", 100, pipeline).train.labels.tolist() == [3, 4]
    assert fetch(tmp_path / "data", archive()) == folder
    assert fetch(folder, archive()) == folder
    assert site.requests == 1


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../escaped"),
        tarfile.TarInfo(f"{FOLDER}/../../escaped"),
        tarfile.TarInfo("/tmp/escaped-regun-test"),
        tarfile.TarInfo("elsewhere/file"),
        link(f"{FOLDER}/link", "/etc/passwd", tarfile.SYMTYPE),
        link(f"{FOLDER}/hard", f"{FOLDER}/train", tarfile.LNKTYPE),
        link(f"{FOLDER}/pipe", "", tarfile.FIFOTYPE),
    ],
    ids=lambda m: m.name,
)
def test_a_hostile_archive_extracts_nothing(tmp_path: Path, fetch, member: tarfile.TarInfo) -> None:
    with error(DataError, member.name, FOLDER):
        fetch(tmp_path / "data", archive(member))
    assert [p.name for p in (tmp_path / "data").iterdir()] == [f"{FOLDER}.tar.gz"]
    assert [p.name for p in tmp_path.iterdir()] == ["data"]
    assert not Path("/tmp/escaped-regun-test").exists()


@pytest.mark.parametrize(
    ("body", "names"),
    [(archive(leave_out="meta"), ["meta"]), (b"not an archive", [FOLDER]), (archive()[:-40], [FOLDER])],
    ids=["incomplete", "no archive", "truncated"],
)
def test_an_archive_without_the_data_set_leaves_no_folder(tmp_path: Path, fetch, body: bytes, names: list[str]) -> None:
    with error(DataError, f"{FOLDER}.tar.gz", *names):
        fetch(tmp_path, body)
    assert [p.name for p in tmp_path.iterdir()] == [f"{FOLDER}.tar.gz"]


def test_an_incomplete_folder_is_not_taken_for_the_data_set(site: Site, tmp_path: Path, fetch) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "train").touch()
    with error(DataError, tmp_path / FOLDER, "test", "meta"):
        fetch(tmp_path, archive())
    assert site.requests == 0
    with error(DataError, 50, 10, 100):
        fetch_cifar(tmp_path, 50)  # type: ignore[arg-type]
