"""Downloads: against a real HTTP server on loopback that cuts, ignores ranges, lies and serves hostile archives."""

import hashlib
import io
import pickle
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regun.data.cifar import load_cifar
from regun.data.download import download, fetch_cifar
from regun.data.examples import InputPipeline
from regun.errors import DataError

BODY = np.random.default_rng(0).bytes(700_000)


def sha256(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()


@dataclass
class Site:
    """One file on a server whose behaviour a test may change between requests; `ranges` records what was asked."""

    body: bytes = BODY
    address: str = ""
    cut_after: int | None = None
    honours_range: bool = True
    wrong_range: bool = False
    chunked: bool = False
    status: int = 200
    ranges: list[str | None] = field(default_factory=list)
    sent: int = 0


class Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        site, asked = self.site, self.headers.get("Range")
        site.ranges.append(asked)
        begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and site.honours_range else 0
        if site.status != 200 or begin >= len(site.body):
            self.send_error(site.status if site.status != 200 else 416)
            return
        told = 0 if site.wrong_range else begin
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {told}-{len(site.body) - 1}/{len(site.body)}")
        self._send(site.body[told:])

    def _send(self, body: bytes) -> None:
        kept = body if self.site.cut_after is None else body[: self.site.cut_after]
        if self.site.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            kept = f"{len(body):x}\r\n".encode() + kept + (b"\r\n0\r\n\r\n" if kept == body else b"")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.site.sent += len(kept)  # before the client can have read it all
        self.wfile.write(kept)
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


def part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


@pytest.mark.parametrize("checksum", [sha256(BODY), "md5:" + hashlib.md5(BODY).hexdigest().upper()])
def test_a_download_arrives_whole_and_reports_progress(site: Site, tmp_path: Path, checksum: str) -> None:
    seen: list[tuple[int, int]] = []
    target = download(
        site.address, tmp_path / "deep" / "file", checksum, lambda done, total: seen.append((done, total))
    )
    assert target.read_bytes() == BODY
    assert not part(target).exists()
    assert seen[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_what_is_there_already_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(BODY)
    assert download(site.address, target, sha256(BODY)) == target
    part(tmp_path / "other").write_bytes(BODY)  # complete, but the run ended before the rename
    assert download(site.address, tmp_path / "other", sha256(BODY)).read_bytes() == BODY
    assert site.ranges == []


def test_a_target_with_other_content_is_replaced(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    assert download(site.address, tmp_path / "file", sha256(BODY)).read_bytes() == BODY


def test_a_cut_connection_is_resumed_where_it_ended(site: Site, tmp_path: Path) -> None:
    target, site.cut_after = tmp_path / "file", 300_000
    with pytest.raises(DataError, match="was cut after 300000 of 700000 bytes.*try again to continue there"):
        download(site.address, target, sha256(BODY))
    assert part(target).read_bytes() == BODY[:300_000]
    assert not target.exists()
    site.cut_after, site.sent = None, 0
    seen: list[tuple[int, int]] = []
    assert download(site.address, target, sha256(BODY), lambda d, t: seen.append((d, t))).read_bytes() == BODY
    assert site.ranges == [None, "bytes=300000-"]
    assert site.sent == 400_000
    assert seen[0][0] > 300_000
    assert seen[-1] == (700_000, 700_000)


def test_a_server_that_ignores_ranges_starts_again(site: Site, tmp_path: Path) -> None:
    part(tmp_path / "file").write_bytes(BODY[:1000])
    site.honours_range = False
    assert download(site.address, tmp_path / "file", sha256(BODY)).read_bytes() == BODY
    assert site.ranges == ["bytes=1000-"]


def test_a_server_that_answers_another_range_starts_again(site: Site, tmp_path: Path) -> None:
    part(tmp_path / "file").write_bytes(BODY[:1000])
    site.wrong_range = True
    assert download(site.address, tmp_path / "file", sha256(BODY)).read_bytes() == BODY
    assert site.ranges == ["bytes=1000-", None]


def test_a_part_longer_than_the_file_starts_again(site: Site, tmp_path: Path) -> None:
    part(tmp_path / "file").write_bytes(BODY + b"more")
    assert download(site.address, tmp_path / "file", sha256(BODY)).read_bytes() == BODY
    assert site.ranges == ["bytes=700004-", None]


def test_a_cut_without_a_length_is_noticed_too(site: Site, tmp_path: Path) -> None:
    site.chunked, site.cut_after = True, 300_000
    with pytest.raises(DataError, match=r"was cut \(.*try again to continue there"):
        download(site.address, tmp_path / "file", sha256(BODY))
    site.cut_after = None
    seen: list[tuple[int, int]] = []
    download(site.address, tmp_path / "file", sha256(BODY), lambda d, t: seen.append((d, t)))
    assert (tmp_path / "file").read_bytes() == BODY
    assert seen[-1] == (700_000, 0)


def test_a_wrong_checksum_removes_what_came(site: Site, tmp_path: Path) -> None:
    wrong = "0" * 64
    with pytest.raises(DataError, match=f"gave 700000 bytes with sha256 {sha256(BODY)[7:]}; expected {wrong}"):
        download(site.address, tmp_path / "file", f"sha256:{wrong}")
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_another_file_is_found_out(site: Site, tmp_path: Path) -> None:
    part(tmp_path / "file").write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match="The file was removed: try again"):
        download(site.address, tmp_path / "file", sha256(BODY))
    assert download(site.address, tmp_path / "file", sha256(BODY)).read_bytes() == BODY


@pytest.mark.parametrize("begun", [False, True])
def test_an_http_error_is_told(site: Site, tmp_path: Path, begun: bool) -> None:
    site.status = 404
    if begun:
        part(tmp_path / "file").write_bytes(BODY[:10])
    with pytest.raises(DataError, match="answered 404 Not Found; expected the file. Check the address"):
        download(site.address, tmp_path / "file", sha256(BODY))


def test_an_unreachable_server_is_told(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be reached: .*Check the address and the network"):
        download("http://127.0.0.1:1/file", tmp_path / "file", sha256(BODY))


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/file", "file"])
def test_other_protocols_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="expected one that starts with http:// or https://"):
        download(url, tmp_path / "file", sha256(BODY))


@pytest.mark.parametrize("checksum", ["", "abc", "md5:abc", "sha1:" + "0" * 40, "crc:", "sha256:" + "g" * 64])
def test_a_checksum_must_be_one(tmp_path: Path, checksum: str) -> None:
    with pytest.raises(DataError, match="expected sha256:<64 hex digits> or md5:<32 hex digits>"):
        download("http://127.0.0.1:1/file", tmp_path / "file", checksum)


def test_a_target_that_cannot_be_written_is_told(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write .*give a folder you may write to"):
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


def fetch(site: Site, root: Path, body: bytes) -> Path:
    site.body = body
    return fetch_cifar(root, 100, site.address, sha256(body))


def test_a_fetched_archive_can_be_loaded_and_is_fetched_once(site: Site, tmp_path: Path) -> None:
    folder = fetch(site, tmp_path / "data", archive())
    assert folder == tmp_path / "data" / FOLDER
    assert [p.name for p in (tmp_path / "data").iterdir()] == [FOLDER]
    pipeline = InputPipeline("p", (0.5,) * 3, (0.5,) * 3)
    assert load_cifar(tmp_path / "data", 100, pipeline).train.labels.tolist() == [3, 4]
    assert fetch(site, tmp_path / "data", archive()) == folder
    assert fetch(site, folder, archive()) == folder
    assert len(site.ranges) == 1


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
def test_a_hostile_archive_extracts_nothing(site: Site, tmp_path: Path, member: tarfile.TarInfo) -> None:
    with pytest.raises(DataError, match="expected only ordinary files below cifar-100-python/. Nothing was extracted"):
        fetch(site, tmp_path / "data", archive(member))
    assert [p.name for p in (tmp_path / "data").iterdir()] == [f"{FOLDER}.tar.gz"]
    assert [p.name for p in tmp_path.iterdir()] == ["data"]
    assert not Path("/tmp/escaped-regun-test").exists()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (archive(leave_out="meta"), "lacks meta; expected a CIFAR archive"),
        (b"not an archive", "cannot be extracted to .*remove the archive and try again"),
        (archive()[:-40], "cannot be extracted"),
    ],
    ids=["incomplete", "no archive", "truncated"],
)
def test_an_archive_without_the_data_set_leaves_no_folder(site: Site, tmp_path: Path, body: bytes, text: str) -> None:
    with pytest.raises(DataError, match=text):
        fetch(site, tmp_path, body)
    assert [p.name for p in tmp_path.iterdir()] == [f"{FOLDER}.tar.gz"]


def test_an_incomplete_folder_is_not_taken_for_the_data_set(site: Site, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "train").touch()
    with pytest.raises(DataError, match=r"exists but lacks test, meta; expected all of CIFAR-100.*Remove it"):
        fetch(site, tmp_path, archive())
    assert site.ranges == []


def test_an_address_needs_its_checksum(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="url and checksum belong together"):
        fetch_cifar(tmp_path, 10, url="http://127.0.0.1:1/")
    with pytest.raises(DataError, match="there are 10 and 100"):
        fetch_cifar(tmp_path, 50)  # type: ignore[arg-type]
