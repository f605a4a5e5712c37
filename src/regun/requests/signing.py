"""Ed25519 signatures of receipts."""

import importlib
from pathlib import Path
from typing import Any

from regun.errors import RegunError

HOW = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out public.pem"


def sign(content: bytes, key: Path) -> dict[str, str]:
    """The signature of `content` by the private key in a PEM file, with the public key that checks it."""
    private = _load(key, private=True)
    public: bytes = private.public_key().public_bytes_raw()
    return {"algorithm": "Ed25519", "public_key": public.hex(), "value": private.sign(content).hex()}


def refuse_bad_key(key: Path) -> None:
    """Find out before any work that a key cannot sign."""
    sign(b"", key)


def signed_by(signature: Any, content: bytes) -> str | None:
    """The public key (hex) that made this signature of `content`; None if none did."""
    ed25519 = _module("hazmat.primitives.asymmetric.ed25519")
    invalid: type[Exception] = _module("exceptions").InvalidSignature
    try:
        if signature["algorithm"] != "Ed25519":
            return None
        raw = bytes.fromhex(signature["public_key"])
        ed25519.Ed25519PublicKey.from_public_bytes(raw).verify(bytes.fromhex(signature["value"]), content)
    except (invalid, ValueError, KeyError, TypeError):
        return None
    return raw.hex()


def read_public_key(path: Path) -> str:
    """The public key of a PEM file, in hex."""
    return _load(path, private=False).public_bytes_raw().hex()


def _load(path: Path, *, private: bool) -> Any:
    serialization, ed25519 = _module("hazmat.primitives.serialization"), _module("hazmat.primitives.asymmetric.ed25519")
    unsupported: type[Exception] = _module("exceptions").UnsupportedAlgorithm
    what = "private" if private else "public"
    try:
        content = path.read_bytes()
        key: Any = (
            serialization.load_pem_private_key(content, password=None)
            if private
            else serialization.load_pem_public_key(content)
        )
    except OSError as fault:
        raise RegunError(f"cannot read the {what} key {path}: {fault.strerror or fault}.") from None
    except (ValueError, TypeError, unsupported):
        raise RegunError(f"{path} holds no {what} key in PEM form without a password; make one: {HOW}") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        raise RegunError(f"{path} holds a key of another kind; give an Ed25519 {what} key: {HOW}")
    return key


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"cryptography.{name}")
    except ModuleNotFoundError:
        raise RegunError("signatures need the package cryptography: pip install 'regun[sign]'") from None
