"""How ids, references and digests are written down: in the clear, or under a salt; and the reading of secrets."""

import hmac
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from regun.errors import RegunError

SHORTEST_SALT, LARGEST_SECRET = 16, 1_000_000
"""Bytes a salt must have (ids are few, so it alone keeps them from being found by trying), and a salt or key may."""


@dataclass(frozen=True)
class Naming:
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
    salt = read_secret(path, "salt")
    if len(salt) < SHORTEST_SALT:
        raise RegunError(
            f"the salt {path} has {len(salt)} bytes; at least {SHORTEST_SALT} random ones are needed: "
            f"(umask 077; head -c 32 /dev/urandom > {path.name})"
        )
    refuse_open(path, "salt")
    return Naming(salt)


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


def refuse_open(path: Path, what: str) -> None:
    """Raise if every user of the machine may read or change a secret."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise RegunError(
            f"the {what} {path} is open to every user of this machine (mode {mode:o}), so it is no secret; make a new "
            f"one, or chmod 600 {path.name} if nobody has read it."
        )
