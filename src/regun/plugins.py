"""User code by name: `module`, `path/to/file.py`, and functions in either, with their settings."""

import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

from regun.errors import RegunError, unknown
from regun.settings import bind

READABLE = (bool, int, float, str)
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_NEIGHBORS: dict[str, str] = {}
"""Folder of each module that a user's file has imported from its own folder."""


def find_function(name: str, what: str) -> Callable[..., Any]:
    """Return the function of `module:function` or `path/to/file.py:function`; errors say that it `what`."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise RegunError(f"{name!r} is not of the form module:function or path/to/file.py:function.")
    module = find_module(place)
    if attribute not in vars(module):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise RegunError(unknown(f"function of {place}", attribute, names))
    function = vars(module)[attribute]
    if not callable(function):
        raise RegunError(f"{name} is a {type(function).__name__}, not a function that {what}.")
    return function


@contextmanager
def user_code(what: str) -> Generator[None]:
    """Turn what user code raises inside the block, also sys.exit, into a RegunError that names it."""
    try:
        yield
    except (RegunError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as fault:
        raise RegunError(f"{what} failed: {type(fault).__name__}: {fault}") from fault


def find_module(place: str) -> ModuleType:
    """Return a module by its dotted name, or a Python file by its path."""
    if place.endswith(".py"):
        return _run_file(_expanded(place))
    try:
        with user_code(f"importing {place}"):
            return importlib.import_module(place)
    except RegunError as fault:
        missing = fault.__cause__.name if isinstance(fault.__cause__, ModuleNotFoundError) else None
        if missing is None or not (place == missing or place.startswith(missing + ".")):
            raise
        raise RegunError(
            f"there is no module {place!r} on Python's path, and no built-in of that name. "
            f"For a file, write its path: {place.replace('.', '/')}.py:function"
        ) from fault


def absolute_name(name: str, folder: Path | str | None = None) -> str:
    """Return `file.py:function` with an absolute path, below `folder` or the current directory; other names as is."""
    file, colon, function = name.rpartition(":")
    if not file.endswith(".py"):
        return name
    return f"{(Path(folder or '.') / _expanded(file)).resolve()}{colon}{function}"


def in_folder(name: str, folder: Path | str) -> str:
    """Return `file.py` or `file.py:function` with a relative file put below `folder`; other names as they are."""
    file, colon, function = name.rpartition(":") if ".py:" in name else (name, "", "")
    path = Path(file).expanduser()
    if not file.endswith(".py") or path.is_absolute():
        return name
    return f"{Path(folder) / path}{colon}{function}"


@dataclass(frozen=True)
class UserFunction:
    """A user's function with its settings, parsed by its signature."""

    name: str
    function: Callable[..., Any]
    settings: Mapping[str, Any]

    def takes(self, parameter: str) -> bool:
        """Return True if the function has a parameter of that name."""
        return parameter in parameters_of(self.name, self.function)

    def call(self, **arguments: Any) -> Any:
        """Return the result for its settings and `arguments`; an error inside it names the call."""
        hints = _hints(self.function)
        settings = dict(self.settings)
        for key, value in settings.items():
            hint = hints.get(key)
            options = (hint,) if get_origin(hint) is tuple else get_args(hint) or (hint,)
            settings[key] = Path(value) if Path in options and value else value
        shown = ", ".join(f"{key}={value!r}" for key, value in {**arguments, **self.settings}.items())
        with user_code(f"{self.name}({shown})"):
            return self.function(**arguments, **settings)


def find_user_function(name: str, settings: Mapping[str, Any], what: str, reserved: Sequence[str] = ()) -> UserFunction:
    """Import the function `name` and parse `settings` by its signature; unknown settings raise.

    `reserved` parameters are not settings: the caller fills them.
    """
    function = find_function(name, what)
    parameters = parameters_of(name, function)
    anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    free = {key: value for key, value in settings.items() if anything and key not in parameters}
    fields = [_field(p, _hints(function)) for p in parameters.values() if p.name not in reserved and p.kind in NAMED]
    shape: Any = dataclasses.make_dataclass("Settings", fields, kw_only=True, frozen=True)
    read: Any = bind(shape, {key: value for key, value in settings.items() if key not in free}, name)
    return UserFunction(name, function, {key: free[key] if key in free else vars(read)[key] for key in settings})


def parameters_of(name: str, function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a user's function by name."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise RegunError(f"{name} has no signature that can be read. Write a function in a file.") from None


def source_digest(thing: Callable[..., Any], name: str) -> str:
    """Return the SHA-256 of the file that defines a function or a class, without what that file imports."""
    try:
        source = inspect.getsourcefile(inspect.unwrap(thing))
    except TypeError:
        source = None
    if source is None or not Path(source).is_file():
        raise RegunError(
            f"{name} has no Python source file, so changes of it could not be detected. Write it in a file."
        )
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()


def is_code(name: str) -> bool:
    """Return True if the name of a model, a method or a data set means user code."""
    return name.endswith(".py") or (":" in name and not name.startswith("hf:"))


def file_digest(name: str) -> str:
    """Return the SHA-256 of the file of `file.py`, `file.py:function` or `module:function`, without running it."""
    place = _place(name)
    if place.endswith(".py"):
        return hashlib.sha256(_read(_expanded(place))).hexdigest()
    folders, spec, parts = None, None, place.split(".")
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), folders)
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if spec is None or spec.origin is None:
        raise RegunError(f"there is no file of Python code behind the module {place!r}; name its file instead.")
    return hashlib.sha256(_read(Path(spec.origin))).hexdigest()


def trusted_name(name: str, digest: str | None, trusted: Iterable[str], option: str) -> str:
    """Return the name under which code that a store names may run; raise unless the user has named the same code.

    `digest` is that of the file, from the store; if it is None, the same name must be trusted. Names that are not code
    are returned as they are. Raises before anything is imported; `option` is where the user names code.
    """
    if not is_code(name):
        return name
    place, function = _place(name), name.removeprefix(_place(name))
    alike = [other for other in trusted if is_code(other) and other.removeprefix(_place(other)) == function]
    for other in alike:
        if absolute_name(other) == absolute_name(name) if digest is None else file_digest(other) == digest:
            return other
    if alike:
        raise RegunError(
            f"the code of {alike[0]} differs from that of {name} in the store: it has changed, or is another file. "
            f"Restore it, or make the model again."
        )
    raise RegunError(
        f"the store names {name}, which is code; code that a store names is run only if you name it too. Read {place}, "
        f"and if you trust it, add {option} {name} (in Python: regun.Store(..., trusted=[...]) with that name)."
    )


def _place(name: str) -> str:
    """Return the module or file of a name."""
    return name if name.endswith(".py") else name.rpartition(":")[0]


def _expanded(place: str) -> Path:
    try:
        return Path(place).expanduser()
    except RuntimeError:  # ~nobody
        return Path(place)


def _read(path: Path) -> bytes:
    try:
        if path.is_file():
            return path.read_bytes()
    except OSError as fault:
        raise RegunError(f"cannot read {str(path)[:300]!r}: {fault.strerror or fault}.") from None
    raise RegunError(f"there is no file {str(path)!r} (current directory: {Path.cwd()}).")


def _run_file(path: Path) -> ModuleType:
    """Run a file as a module that may import its neighbors.

    The module's name holds the digest of the text, so an edited file is run again.
    """
    text = _read(path)
    name = f"{path.stem}_{hashlib.sha256(bytes(path.resolve()) + text).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise RegunError(f"{path} cannot be run as Python code.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look a class's module up there
    try:
        with user_code(f"running {path}"), _importing_from(path.resolve().parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _importing_from(folder: Path) -> Generator[None]:
    """Let modules of the folder be imported, as for a script in it; forget modules of the same names elsewhere."""
    place = str(folder)
    for top in [top for top, other in _NEIGHBORS.items() if other != place and PathFinder.find_spec(top, [place])]:
        del _NEIGHBORS[top]
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]
    before = set(sys.modules)
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if place in sys.path:
            sys.path.remove(place)
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).parent in (folder, folder / name):
                _NEIGHBORS[name] = place


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function.__init__ if inspect.isclass(function) else function
    try:
        return get_type_hints(target)
    except (NameError, TypeError):
        return {}


def _field(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> tuple[str, Any, Any]:
    """Return a parameter as a dataclass field: name, type that text can be parsed to, default."""
    default = parameter.default
    plain = type(default) if isinstance(default, READABLE) else Any
    hint = hints.get(parameter.name, plain)
    unreadable = [option for option in get_args(hint) if option not in READABLE]
    simple = hint in READABLE or get_origin(hint) is tuple or unreadable == [type(None)]
    # the function applies its default itself: here only the presence of one counts
    required = default is inspect.Parameter.empty
    return parameter.name, hint if simple else Any, dataclasses.field() if required else dataclasses.field(default=None)
