"""Ids and requesters in the clear or, under a salt, as keyed hashes that only the holder of the salt can recompute."""

import hmac
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from regun.errors import RegunError

SHORTEST_SALT = 16
"""Bytes a salt must have: ids are few, so the salt alone keeps them from being found by trying."""


@dataclass(frozen=True)
class Pseudonyms:
    """Ids, requesters and digests in the clear or, under a `salt`, as HMAC-SHA256."""

    salt: bytes | None = field(default=None, repr=False)

    def of(self, texts: Iterable[str], what: str = "id") -> list[str]:
        """Return the written form of each text: itself, or 32 hex digits under a salt.

        >>> Pseudonyms().of(["7"]), [len(name) for name in Pseudonyms(b"0123456789abcdef").of(["7"])]
        (['7'], [32])
        """
        if self.salt is None:
            return list(texts)
        salt, start = self.salt, f"{what}\0".encode()
        return [hmac.digest(salt, start + text.encode("utf-8", "surrogatepass"), "sha256").hex()[:32] for text in texts]

    def digest(self, plain: str) -> str:
        """Return the written form of a digest of rows: rows are few, so a plain one can be found by trying them."""
        return plain if self.salt is None else hmac.digest(self.salt, f"digest\0{plain}".encode(), "sha256").hex()

    @property
    def kind(self) -> str:
        """`plain`, or the salted hash with an identifier of the salt."""
        if self.salt is None:
            return "plain"
        return f"hmac-sha256 under salt {hmac.digest(self.salt, b'which salt', 'sha256').hex()[:12]}"

    def check_same(self, kind: str, where: Path) -> None:
        """Raise unless ids that were written as `kind` can be compared with these."""
        if kind == self.kind:
            return
        if kind == "plain":
            raise RegunError(f"the ledger {where} holds its ids in the clear; omit pseudonyms=, or start a new out=.")
        got = "no salt" if self.salt is None else "another salt"
        raise RegunError(f"the ledger {where} holds its ids as {kind}; got {got}. Give pseudonyms= with that salt.")


def read_pseudonyms(path: Path | None) -> Pseudonyms:
    """Return the pseudonyms under the salt in a file; plain ids without one."""
    if path is None:
        return Pseudonyms()
    salt = read_secret(path, "salt")
    if len(salt) < SHORTEST_SALT:
        raise RegunError(
            f"the salt {path} has {len(salt)} bytes; at least {SHORTEST_SALT} random ones are needed: "
            f"(umask 077; head -c 32 /dev/urandom > {path.name})"
        )
    check_private(path, "salt")
    return Pseudonyms(salt)


def read_secret(path: Path, what: str) -> bytes:
    """Return the bytes of a salt or a key."""
    try:
        return path.read_bytes()
    except OSError as fault:
        raise RegunError(f"cannot read the {what} {path}: {fault.strerror or fault}.") from None


def check_private(path: Path, what: str) -> None:
    """Raise if every user of the machine may read or change a secret."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise RegunError(
            f"the {what} {path} is open to every user of this machine (mode {mode:o}); make a new one, or chmod 600 "
            f"{path.name} if nobody has read it."
        )
