"""The detached signature: Ed25519 over a ledger line, which holds the digests of the receipt and all other files."""

import importlib
import json
from pathlib import Path
from typing import Any

from regun.deletion.ledger import LedgerLine, parse_line
from regun.deletion.pseudonyms import check_private, read_secret
from regun.errors import RegunError, not_installed

HOW = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out public.pem"


def public_key_of(key: Path | None) -> str:
    """Return the public key (hex) of a private key in PEM form; raise if it cannot sign. Empty without a key."""
    return "" if key is None else _load(key, private=True).public_key().public_bytes_raw().hex()


def read_public_key(path: Path) -> str:
    """Return the public key of a PEM file in hex."""
    return _load(path, private=False).public_bytes_raw().hex()


def sign(line: LedgerLine, key: Path) -> bytes:
    """Return the content of signature.json: the ledger line and the signature over its bytes."""
    signature = _load(key, private=True).sign(line.text().encode()).hex()
    return _written(line, signature)


def read_signature(content: bytes) -> LedgerLine | None:
    """Return the signed line; None unless signature.json is exactly what `sign` writes and its signature is valid."""
    try:
        stored: dict[str, Any] = dict(json.loads(content))
        line, signature = parse_line(str(stored["line"]).encode()), str(stored["signature"])
        if line is None or _written(line, signature) != content:
            return None
        ed25519 = _module("hazmat.primitives.asymmetric.ed25519")
        public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(line.signer))
        public.verify(bytes.fromhex(signature), line.text().encode())
    except (ValueError, KeyError, TypeError, RecursionError, _module("exceptions").InvalidSignature):
        return None
    return line if signature == signature.lower() else None


def _written(line: LedgerLine, signature: str) -> bytes:
    return (json.dumps({"line": line.text(), "signature": signature}) + "\n").encode()


def _load(path: Path, *, private: bool) -> Any:
    forms, ed25519 = _module("hazmat.primitives.serialization"), _module("hazmat.primitives.asymmetric.ed25519")
    what = "private key" if private else "public key"
    content = read_secret(path, what)
    try:
        key: Any = forms.load_pem_private_key(content, None) if private else forms.load_pem_public_key(content)
    except (ValueError, TypeError, _module("exceptions").UnsupportedAlgorithm):
        raise RegunError(f"{path} holds no {what} in PEM form without a password; make one: {HOW}") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        raise RegunError(f"{path} holds a key of another kind; give an Ed25519 {what}: {HOW}")
    if private:
        check_private(path, what)
    return key


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"cryptography.{name}")
    except ModuleNotFoundError:
        raise RegunError(not_installed("a signature", "cryptography", "sign")) from None
