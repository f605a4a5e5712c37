"""The receipt as a sealed and, if asked for, signed document: sections that each carry their digest.

Who signs is a section like the others: a receipt without the signature that it says it has is not intact.
"""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regun.errors import RegunError
from regun.requests.naming import read_secret, refuse_open
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
    "letter",
    "limits",
    "software",
    "ledger",
    "files",
    "signer",
)
LARGEST = 64_000_000
"""Bytes of a receipt that are read; a real one has some ten thousand."""
ALGORITHM = "Ed25519"
HOW = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out public.pem"

Receipt = dict[str, Any]


def seal(sections: Mapping[str, Any], key: Path | None) -> Receipt:
    """The receipt of these sections: who signs it, digests of each and of it all and, with a key, the signature."""
    private = _load(key, private=True) if key is not None else None
    signer = {"algorithm": ALGORITHM, "public_key": private.public_key().public_bytes_raw().hex()} if private else None
    whole = {**sections, "signer": signer}
    body = {"kind": KIND, "format": FORMAT, **{name: whole[name] for name in SECTIONS}}
    digested = {**body, "digests": {name: digest(body[name]) for name in SECTIONS}}
    sealed = {**digested, "seal": digest(digested)}
    return {**sealed, "signature": private.sign(_signed_part(sealed)).hex() if private else None}


def written(receipt: Receipt) -> bytes:
    """The bytes of receipt.json."""
    return (json.dumps(receipt, indent=1, allow_nan=False) + "\n").encode()


def read_receipt(path: Path) -> tuple[Receipt, bytes]:
    """A receipt of this format and the bytes it was read from; whether it is intact is for `changes` to say."""
    try:
        if path.exists() and not path.is_file():
            raise RegunError(f"{path} is no regular file. Name a receipt.json.")
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


def signature_fault(receipt: Receipt) -> str | None:
    """What is wrong with the signature; None if it is the one the receipt says it has, or rightly none."""
    signer, signature = receipt["signer"], receipt["signature"]
    if signer is None:
        return None if signature is None else "one was put in: the receipt says that it is not signed"
    if signature is None:
        return "it was taken out: the receipt says that it is signed"
    try:
        public, value = bytes.fromhex(signer["public_key"]), bytes.fromhex(signature)
        plain = {"algorithm": ALGORITHM, "public_key": public.hex()} == signer and value.hex() == signature
        _module("hazmat.primitives.asymmetric.ed25519").Ed25519PublicKey.from_public_bytes(public).verify(
            value, _signed_part({name: part for name, part in receipt.items() if name != "signature"})
        )
    except (_module("exceptions").InvalidSignature, ValueError, KeyError, TypeError, RecursionError):
        plain = False
    return None if plain else "it does not fit the receipt: one of the two was changed"


def refuse_bad_key(key: Path) -> None:
    """Find out before any work that a key cannot sign."""
    _load(key, private=True)


def read_public_key(path: Path) -> str:
    """The public key of a PEM file, in hex."""
    return _load(path, private=False).public_bytes_raw().hex()


def _signed_part(sealed: Receipt) -> bytes:
    """What a signature covers: everything but itself."""
    return canonical_json(sealed).encode()


def _load(path: Path, *, private: bool) -> Any:
    forms, ed25519 = _module("hazmat.primitives.serialization"), _module("hazmat.primitives.asymmetric.ed25519")
    unsupported: type[Exception] = _module("exceptions").UnsupportedAlgorithm
    what = "private key" if private else "public key"
    content = read_secret(path, what)
    try:
        key: Any = forms.load_pem_private_key(content, None) if private else forms.load_pem_public_key(content)
    except (ValueError, TypeError, unsupported):
        raise RegunError(f"{path} holds no {what} in PEM form without a password; make one: {HOW}") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        raise RegunError(f"{path} holds a key of another kind; give an Ed25519 {what}: {HOW}")
    if private:
        refuse_open(path, what)
    return key


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"cryptography.{name}")
    except ModuleNotFoundError:
        raise RegunError("signatures need the package cryptography: pip install 'regun[sign]'") from None


def _digest(value: Any) -> str | None:
    """The digest of what was read; None for what no receipt holds: NaN, half a character, nesting without end."""
    try:
        return digest(value)
    except (ValueError, RecursionError):
        return None
