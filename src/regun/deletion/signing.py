"""What must not be changed or known: the receipt as a sealed and, if asked for, signed document, and ids under a salt.

Every section of a receipt carries its digest. Who signs is a section like the others: a receipt without the signature
that it says it has is not intact.
"""

import hmac
import importlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regun.errors import RegunError
from regun.hashing import canonical_json, digest
from regun.settings import read_json

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
SHORTEST_SALT, LARGEST_SECRET = 16, 1_000_000
"""Bytes a salt must have (ids are few, so it alone keeps them from being found by trying), and a salt or key may."""
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
        what = "a receipt.json, or the folder that regun forget wrote to"
        raise RegunError(f"cannot read {path}: {fault.strerror or fault}. Name {what}.") from None
    if len(content) > LARGEST:
        raise RegunError(f"{path} has more than {LARGEST:,} bytes; that is no receipt.")
    try:
        receipt: Receipt = dict(read_json(content, str(path)))
    except (ValueError, TypeError):
        raise RegunError(f"{path} is not a receipt: it holds no JSON object.") from None
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


def check_bad_key(key: Path) -> None:
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
        check_open(path, what)
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


# ----------------------------------------------------------------------------------------------------- ids under a salt


@dataclass(frozen=True)
class Pseudonyms:
    """Ids, references and digests in the clear or, under a `salt`, as HMAC-SHA256: only who has it can tell whose."""

    salt: bytes | None = field(default=None, repr=False)

    def of(self, texts: Iterable[str], what: str = "id") -> list[str]:
        """The written form of each text (32 hex digits under a salt).

        >>> Naming().of(["7"]), [len(name) for name in Naming(b"0123456789abcdef").of(["7"])]
        (['7'], [32])
        """
        if self.salt is None:
            return list(texts)
        salt, start = self.salt, f"{what}\0".encode()
        coded = (start + text.encode("utf-8", "surrogatepass") for text in texts)
        return [hmac.digest(salt, one, "sha256").hex()[:32] for one in coded]

    def digest(self, plain: str) -> str:
        """A digest of few rows as it may be shown: rows are few, so a plain one can be found by trying them."""
        return plain if self.salt is None else hmac.digest(self.salt, f"digest\0{plain}".encode(), "sha256").hex()

    @property
    def kind(self) -> str:
        """`plain`, or the salted hash with what tells one salt from another."""
        if self.salt is None:
            return "plain"
        return f"hmac-sha256 under salt {hmac.digest(self.salt, b'which salt', 'sha256').hex()[:12]}"

    def check_other(self, kind: str, where: Path) -> None:
        """Raise unless ids written as `kind` can be compared with this naming's."""
        if kind == self.kind:
            return
        if kind == "plain":
            raise RegunError(f"the ledger {where} holds its ids in the clear; leave --salt out, or start a new --out.")
        raise RegunError(
            f"the ledger {where} holds its ids as {kind}, and {'no salt' if self.salt is None else 'another salt'} was "
            f"given; give --salt with the file it was begun with."
        )


def read_pseudonyms(path: Path | None) -> Pseudonyms:
    """The naming that a salt file asks for; plain without one."""
    if path is None:
        return Pseudonyms()
    salt = read_secret(path, "salt")
    if len(salt) < SHORTEST_SALT:
        raise RegunError(
            f"the salt {path} has {len(salt)} bytes; at least {SHORTEST_SALT} random ones are needed: "
            f"(umask 077; head -c 32 /dev/urandom > {path.name})"
        )
    check_open(path, "salt")
    return Pseudonyms(salt)


def read_secret(path: Path, what: str) -> bytes:
    """The bytes of a salt or a key."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_SECRET + 1)
    except OSError as fault:
        raise RegunError(f"cannot read the {what} {path}: {fault.strerror or fault}.") from None
    if len(content) > LARGEST_SECRET:
        raise RegunError(f"the {what} {path} has more than {LARGEST_SECRET:,} bytes; name the right file.")
    return content


def check_open(path: Path, what: str) -> None:
    """Raise if every user of the machine may read or change a secret."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise RegunError(
            f"the {what} {path} is open to every user of this machine (mode {mode:o}), so it is no secret; make a new "
            f"one, or chmod 600 {path.name} if nobody has read it."
        )
