"""How ids are written down: as they are, or so that only who has the salt can tell whose they are."""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from regun.errors import RegunError

SHORTEST = 16
"""Bytes a salt must have; ids are few and guessable, so the salt alone keeps them from being found by trying."""


@dataclass(frozen=True)
class Naming:
    """Ids in the clear, or HMAC-SHA256 of them under `salt` (its first 32 hex digits)."""

    salt: bytes | None = field(default=None, repr=False)

    def of(self, ids: Iterable[str]) -> list[str]:
        """The written form of each id.

        >>> Naming().of(["7"]), [len(name) for name in Naming(b"0123456789abcdef").of(["7"])]
        (['7'], [32])
        """
        salt = self.salt
        if salt is None:
            return list(ids)
        return [hmac.digest(salt, one.encode("utf-8", "surrogatepass"), "sha256").hex()[:32] for one in ids]

    @property
    def kind(self) -> str:
        """`plain`, or the salted hash with what tells one salt from another."""
        if self.salt is None:
            return "plain"
        return f"hmac-sha256 under salt {hmac.digest(self.salt, b'regun: which salt', 'sha256').hex()[:12]}"

    def refuse_other(self, kind: str, where: Path) -> None:
        """Raise unless ids written as `kind` can be compared with this naming's."""
        if kind == self.kind:
            return
        if kind == "plain":
            raise RegunError(f"the ledger {where} holds its ids in the clear; leave --salt out, or start a new --out.")
        raise RegunError(
            f"the ledger {where} holds its ids as {kind}, and {'no salt' if self.salt is None else 'another salt'} was "
            f"given; give --salt with the file it was begun with."
        )


def read_naming(path: Path | None) -> Naming:
    """The naming that a salt file asks for; plain without one."""
    if path is None:
        return Naming()
    try:
        salt = path.read_bytes()
    except OSError as fault:
        raise RegunError(f"cannot read the salt {path}: {fault.strerror or fault}.") from None
    if len(salt) < SHORTEST:
        raise RegunError(
            f"the salt {path} has {len(salt)} bytes; at least {SHORTEST} random ones are needed: "
            f"head -c 32 /dev/urandom > {path.name}"
        )
    return Naming(salt)
