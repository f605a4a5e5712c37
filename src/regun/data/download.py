"""Downloads that can be resumed, are checked, and appear whole or not at all."""

import hashlib
import http.client
import re
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from regun.data.cifar import CifarFiles, cifar_files
from regun.errors import DataError

Progress = Callable[[int, int], None]  # bytes so far, bytes in all (0 when the server does not say)

CHUNK = 1 << 18
TIMEOUT = 60.0  # seconds without a byte

CIFAR_ARCHIVES = {
    10: ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "md5:c58f30108f718f92721af3b95e74349a"),
    100: ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "md5:eb9058c3a382ffc7106e4002c42a8d85"),
}


def download(url: str, target: Path | str, checksum: str, on_progress: Progress | None = None) -> Path:
    """Fetch `url` into `target`, checked against `checksum` ("sha256:<hex>" or "md5:<hex>"); returns `target`.

    Bytes go to `target.part`, which a later call continues; `target` appears only when the checksum is right.
    """
    target = Path(target)
    kind, expected = _parse_checksum(checksum)
    if not url.startswith(("http://", "https://")):
        raise DataError(f"the address is {url!r}; expected one that starts with http:// or https://. Correct it.")
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_file() and _hash_file(target, kind) == expected:
            return target
        if not part.is_file() or _hash_file(part, kind) != expected:
            _receive(url, part, on_progress)
            _verify(part, kind, expected, url)
        part.replace(target)
    except OSError as fault:
        raise DataError(
            f"cannot write {target}: {fault}. Free some space, or give a folder you may write to."
        ) from fault
    return target


def fetch_cifar(
    root: Path | str,
    classes: Literal[10, 100],
    url: str | None = None,
    checksum: str | None = None,
    on_progress: Progress | None = None,
) -> Path:
    """Download and extract CIFAR-10 or CIFAR-100 below `root` unless it is there, or is `root`; returns its folder.

    A `url` of your own needs its own `checksum`. Example: `fetch_cifar("data", 10)` makes `data/cifar-10-batches-py`.
    """
    files = cifar_files(classes)
    if (url is None) != (checksum is None):
        raise DataError("url and checksum belong together, but only one was given; give both, or neither.")
    published, published_checksum = CIFAR_ARCHIVES[classes]
    folder = Path(root) / files.folder
    if all((Path(root) / name).is_file() for name in files.required):
        return Path(root)
    if folder.exists():
        missing = [name for name in files.required if not (folder / name).is_file()]
        if missing:
            raise DataError(
                f"{folder} exists but lacks {', '.join(missing)}; expected all of CIFAR-{classes}, or no such folder. "
                "Remove it and try again."
            )
        return folder
    archive = download(
        url or published, Path(root) / f"{files.folder}.tar.gz", checksum or published_checksum, on_progress
    )
    _extract(archive, folder, files)
    archive.unlink()
    return folder


def _receive(url: str, part: Path, on_progress: Progress | None) -> None:
    with _open(url, part) as response:
        resumed = response.status == 206
        done = part.stat().st_size if resumed else 0
        length: str = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else 0
        with part.open("ab" if resumed else "wb") as file:
            for block in _blocks(response, url, part):
                file.write(block)
                done += len(block)
                if on_progress is not None:
                    on_progress(done, total)
    if done < total:
        raise DataError(_cut(url, part, f"after {done} of {total} bytes"))


def _open(url: str, part: Path) -> Any:
    """The response for what is missing in `part`: 206 with the rest, or 200 with everything."""
    have = part.stat().st_size if part.is_file() else 0
    try:
        if have:
            response = _request(url, {"Range": f"bytes={have}-"})
            right_place = str(response.headers.get("Content-Range", "")).startswith(f"bytes {have}-")
            if response.status == 200 or (response.status == 206 and right_place):
                return response
            response.close()
        return _request(url, {})
    except urllib.error.HTTPError as fault:
        fault.close()
        said = f"{fault.code} {fault.reason}"
        raise DataError(f"{url} answered {said}; expected the file. Check the address, or try later.") from fault
    except (OSError, http.client.HTTPException) as fault:
        raise DataError(f"{url} cannot be reached: {fault}. Check the address and the network; try again.") from fault


def _request(url: str, headers: dict[str, str]) -> Any:
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as fault:
        if fault.code == 416 and headers:  # the part is longer than the file: it is a part of something else
            return fault
        raise


def _blocks(response: Any, url: str, part: Path) -> Iterator[bytes]:
    try:
        while block := response.read(CHUNK):
            yield block
    except (OSError, http.client.HTTPException) as fault:
        raise DataError(_cut(url, part, f"({fault})")) from fault


def _cut(url: str, part: Path, when: str) -> str:
    return f"the connection to {url} was cut {when}. What came is kept in {part}: try again to continue there."


def _parse_checksum(checksum: str) -> tuple[str, str]:
    kind, _, digits = checksum.partition(":")
    if not re.fullmatch({"md5": "[0-9a-f]{32}", "sha256": "[0-9a-f]{64}"}.get(kind, "(?!)"), digits.lower()):
        raise DataError(f"the checksum is {checksum!r}; expected sha256:<64 hex digits> or md5:<32 hex digits>.")
    return kind, digits.lower()


def _hash_file(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def _verify(part: Path, kind: str, expected: str, url: str) -> None:
    got = _hash_file(part, kind)
    if got != expected:
        size = part.stat().st_size
        part.unlink()
        raise DataError(
            f"{url} gave {size} bytes with {kind} {got}; expected {expected}. The file was removed: try again, and if "
            "it happens again, the file at that address is not the expected one."
        )


def _extract(archive: Path, folder: Path, files: CifarFiles) -> None:
    """Extract to a temporary neighbour, then rename: `folder` appears complete or not at all."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".extract-") as temporary:
            with tarfile.open(archive, "r:gz") as tar:
                members = [m for m in tar.getmembers() if not _is_folder(m, archive, files.folder)]
                tar.extractall(temporary, members=members, filter="data")
            made = Path(temporary) / files.folder
            missing = [name for name in files.required if not (made / name).is_file()]
            if missing:
                raise DataError(f"{archive} lacks {', '.join(missing)}; expected a CIFAR archive. Check the address.")
            made.rename(folder)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as fault:
        raise DataError(
            f"{archive} cannot be extracted to {folder}: {fault}. Expected a .tar.gz and a folder that can be "
            "written; remove the archive and try again."
        ) from fault


def _is_folder(member: tarfile.TarInfo, archive: Path, expected: str) -> bool:
    parts = PurePosixPath(member.name).parts
    inside = parts[:1] == (expected,) and ".." not in parts
    if not inside or not (member.isdir() or member.isreg()):
        raise DataError(
            f"{archive} holds {member.name!r}; expected only ordinary files below {expected}/. Nothing was extracted: "
            "do not trust this archive, remove it."
        )
    return member.isdir()
