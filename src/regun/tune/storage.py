"""Where a search keeps its trials while it runs: a SQLite file, a database, or a journal file."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import optuna
import sqlalchemy.exc
from filelock import FileLock
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalStorage

from regun.errors import StoreError

ADDRESSES = "sqlite:///FILE, postgresql://USER@HOST/NAME, mysql://USER@HOST/NAME or journal:FILE"
PATIENCE = 60
"""Seconds to wait for another process to release a SQLite file."""


def open_storage(address: str) -> BaseStorage:
    """The storage at an address, made if it is not there; several processes may open one at the same moment."""
    with quiet(), _alone(address):
        try:
            return _open(address)
        except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError):
            raise StoreError(f"the storage {shown(address)!r} cannot be understood; give {ADDRESSES}.") from None
        except ImportError as fault:
            driver = getattr(fault.__cause__ or fault, "name", None) or "a database driver"
            raise StoreError(f"the storage {shown(address)!r} needs {driver}, which is not installed.") from None
        except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError, OSError, RuntimeError) as fault:
            reason = shown(str(getattr(fault, "orig", None) or fault).splitlines()[0])
            raise StoreError(
                f"the storage {shown(address)!r} cannot be opened ({reason}); give {ADDRESSES} that exists and may "
                f"be written."
            ) from None


def file_of(address: str) -> Path | None:
    """The file behind an address, if it is one."""
    for prefix in ("sqlite:///", "journal:"):
        if address.startswith(prefix) and len(address) > len(prefix):
            return Path(address.removeprefix(prefix))
    return None


def shown(address: str) -> str:
    """The address without its password."""
    return re.sub(r"(://[^:/@\s]*):\S*@", r"\1:***@", address)


@contextmanager
def quiet() -> Generator[None]:
    """Optuna logs to standard error by itself; inside this block only errors, and as before after it."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _open(address: str) -> BaseStorage:
    if address.startswith("journal:"):
        path = file_of(address)
        if path is None:
            raise sqlalchemy.exc.ArgumentError("no file")
        return JournalStorage(JournalFileBackend(str(path)))
    if "://" not in address:
        raise sqlalchemy.exc.ArgumentError("no scheme")
    waiting = {"connect_args": {"timeout": PATIENCE}} if address.startswith("sqlite") else {"pool_pre_ping": True}
    return RDBStorage(address, engine_kwargs=waiting)


@contextmanager
def _alone(address: str) -> Generator[None]:
    """Only one process at a time makes the tables of a file."""
    path = file_of(address)
    if path is None or not path.parent.is_dir():
        yield
        return
    try:
        held = FileLock(f"{path}.opening").acquire()  # a journal has a .lock of its own
    except OSError as fault:
        raise StoreError(f"the storage {shown(address)!r} cannot be written: {fault.strerror or fault}.") from None
    with held:
        yield
