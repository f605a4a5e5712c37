"""The receipt: what was asked, done and found, in sections that each carry their digest."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regun.errors import RegunError
from regun.requests.signing import sign
from regun.seeds import canonical_json, digest

FORMAT = 1
KIND = "regun deletion receipt"
SECTIONS = (
    "request",
    "model",
    "data",
    "method",
    "audit",
    "acceptance",
    "limits",
    "software",
    "ledger",
    "files",
)
LARGEST = 64_000_000
"""Bytes of a receipt that are read; a real one has some ten thousand."""

Receipt = dict[str, Any]


def seal(sections: Mapping[str, Any], key: Path | None) -> Receipt:
    """The receipt of these sections: their digests, the digest of it all and, with a key, its signature."""
    body = {"kind": KIND, "format": FORMAT, **{name: sections[name] for name in SECTIONS}}
    whole = {**body, "digests": {name: digest(body[name]) for name in SECTIONS}}
    sealed = {**whole, "seal": digest(whole)}
    return {**sealed, "signature": sign(signed_part(sealed), key) if key is not None else None}


def written(receipt: Receipt) -> bytes:
    """The bytes of receipt.json."""
    return (json.dumps(receipt, indent=1, allow_nan=False) + "\n").encode()


def signed_part(receipt: Receipt) -> bytes:
    """What a signature covers: everything but itself."""
    return canonical_json({k: v for k, v in receipt.items() if k != "signature"}).encode()


def read_receipt(path: Path) -> tuple[Receipt, bytes]:
    """A receipt of this format and the bytes it was read from; whether it is intact is for `changes` to say."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as fault:
        raise RegunError(f"cannot read {path}: {fault.strerror or fault}. Name a receipt.json.") from None
    if len(content) > LARGEST:
        raise RegunError(f"{path} has more than {LARGEST:,} bytes; that is no receipt.")
    try:
        receipt: Receipt = dict(json.loads(content))
    except (ValueError, TypeError, RecursionError):
        raise RegunError(f"{path} is not a receipt, or no longer one: it cannot be read as JSON.") from None
    if receipt.get("kind") != KIND or receipt.get("format") != FORMAT:
        raise RegunError(f"{path} is not a regun receipt of format {FORMAT}; was its beginning changed?")
    missing = [name for name in (*SECTIONS, "digests", "seal", "signature") if name not in receipt]
    if missing or not isinstance(receipt["digests"], dict) or not isinstance(receipt["files"], dict):
        raise RegunError(f"{path} lacks {', '.join(missing) or 'digests or files'}; it is no longer a whole receipt.")
    return receipt, content


def changes(receipt: Receipt, content: bytes) -> list[str]:
    """What was changed since the receipt was sealed, by section."""
    found = [f"the section {n!r} was changed" for n in SECTIONS if _digest(receipt[n]) != receipt["digests"].get(n)]
    known = {"kind", "format", *SECTIONS, "digests", "seal", "signature"}
    found += [f"the section {n!r} was put in" for n in receipt if n not in known]
    sealed = {k: v for k, v in receipt.items() if k not in ("seal", "signature")}
    if not found and _digest(sealed) != receipt["seal"]:
        found.append("the digests or the seal were changed")
    if not found and written(receipt) != content:
        found.append("it was written anew: same content, other bytes")
    return found


def _digest(value: Any) -> str | None:
    """The digest of what was read; None for what no receipt holds: NaN, half a character, nesting without end."""
    try:
        return digest(value)
    except (ValueError, RecursionError):
        return None
