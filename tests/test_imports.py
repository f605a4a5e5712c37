"""Who may import whom, and what nobody may call: the architecture as data, checked against the source."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import regun

ROOT = Path(regun.__file__).parent

WORDS = {"settings", "errors"}
ROOMS: dict[str, set[str]] = {
    # room: the rooms it may import; every one of them stands further down
    "__main__": {"cli"},
    "cli": {"requests", "show", "study", "tune", "runs", "store", "methods", "evaluate", "training", "models", "data"}
    | {"splits", "plugins"}
    | WORDS,
    "requests": {
        "show",
        "api",
        "runs",
        "store",
        "methods",
        "evaluate",
        "training",
        "data",
        "splits",
        "plugins",
        "seeds",
    }
    | WORDS,
    "show": {"study", "tune", "runs", "evaluate", "errors"},
    "study": {"tune", "runs", "store", "methods", "evaluate", "training", "models", "data", "splits", "plugins"}
    | WORDS,
    "api": {"tune", "runs", "methods", "evaluate", "training", "models", "data", "splits"} | WORDS,
    "tune": {"runs", "store", "methods", "evaluate", "training", "splits", "code", "seeds", "errors"},
    "runs": {"store", "methods", "evaluate", "training", "models", "data", "splits", "plugins", "code", "seeds"}
    | WORDS,
    "store": {"training", "seeds", "errors"},
    "methods": {"training", "models", "data", "splits", "plugins", "code", "seeds"} | WORDS,
    "evaluate": {"plugins", "code", "seeds", "errors"},
    "training": {"models", "data", "splits", "seeds"} | WORDS,
    "models": {"plugins", "code", "seeds"} | WORDS,
    "data": {"plugins", "code", "seeds"} | WORDS,
    "splits": {"seeds", "errors"},
    "plugins": WORDS,
    "code": {"seeds"},
    "settings": {"errors"},
    "seeds": set(),
    "errors": set(),
}
NEVER_MEET = [("methods", "evaluate"), ("training", "evaluate"), ("training", "methods")] + [
    ("evaluate", room) for room in ("methods", "training", "store", "models", "data")
]
"""Not even by way of others: a method cannot see its score, a metric cannot know who is judged."""

OUTSIDE = {"evaluate": {"numpy", "scipy"}, "splits": {"numpy"}, "settings": set(), "plugins": set(), "errors": set()}
"""Rooms that may use only these packages besides Python's own."""

FORBIDDEN: dict[str, set[str]] = {
    # call: the files that may make it
    "print": {"cli/"},
    "sys.stdout.write": {"cli/"},
    "input": set(),
    "eval": set(),
    "exec": set(),
    "__import__": set(),
    "pickle.load": set(),
    "pickle.loads": set(),
    "pickle.dump": set(),
    "pickle.dumps": set(),
    "torch.load": set(),
    "torch.save": set(),
    "torch.manual_seed": set(),
    "torch.seed": set(),
    "torch.random.manual_seed": set(),
    "torch.cuda.manual_seed": {"seeds.py"},
    "torch.cuda.manual_seed_all": set(),
    "numpy.random.seed": {"seeds.py"},
    "random.seed": {"seeds.py"},
    "torch.set_num_threads": {"cli/", "study/worker.py"},
    "os.system": set(),
}
METHODS = {"backward": {"training/fit.py"}, "zero_grad": {"training/fit.py"}}
"""Methods of any object that only these files call: there is one loop that changes weights."""


def room_of(file: str) -> str:
    return Path(file).parts[0].removesuffix(".py")


def imports(tree: ast.AST, *, by_name: bool = True) -> Iterator[tuple[str, int]]:
    """Every module imported anywhere in the file, also inside functions and `by_name` in import_module; its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            names = [f"regun.{alias.name}" for alias in node.names] if node.module == "regun" else [node.module or ""]
            yield from ((name, node.lineno) for name in names)
        elif by_name and isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            first = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            if isinstance(first, ast.Constant):
                yield str(first.value).rstrip("."), node.lineno


def calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every call by its full dotted name, whatever the imported module is called here."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({a.asname: a.name for a in node.names if a.asname})
        elif isinstance(node, ast.ImportFrom):
            names.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, dot, rest = ast.unparse(node.func).partition(".")
            yield names.get(first, first) + dot + rest, node.lineno


FILES = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
CALLS = {file: list(calls(tree)) for file, tree in FILES.items()}


def edges() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for file, tree in FILES.items():
        if file != "__init__.py":
            parts = [name.split(".") for name, _ in imports(tree) if name.startswith("regun.")]
            found.setdefault(room_of(file), set()).update({p[1] for p in parts} - {room_of(file)})
    return found


def test_the_table_points_down_only() -> None:
    order = list(ROOMS)
    for room, allowed in ROOMS.items():
        assert allowed <= set(order[order.index(room) + 1 :]), f"{room} may not import what stands above it"


def test_every_room_has_its_place_in_the_table() -> None:
    assert {room_of(file) for file in FILES} - {"__init__"} == set(ROOMS)


@pytest.mark.parametrize("file", FILES)
def test_imports_point_down(file: str) -> None:
    if file == "__init__.py":
        return  # the public list: every room, when first used
    room = room_of(file)
    faults = [
        f"{file}:{line} imports {name}"
        for name, line in imports(FILES[file])
        if name.split(".")[0] == "regun"
        and name.split(".")[1:2] != [room]
        and name.split(".")[1] not in ROOMS.get(room, ())
    ]
    assert not faults, f"{room} may import {sorted(ROOMS.get(room, ()))}"


def test_the_table_is_tight() -> None:
    """An import that went away must go from the table too."""
    found = edges()
    assert {room: allowed - found[room] for room, allowed in ROOMS.items() if allowed - found[room]} == {}


@pytest.mark.parametrize(("above", "below"), NEVER_MEET)
def test_some_rooms_never_meet(above: str, below: str) -> None:
    found, reached, waiting = edges(), set(), [above]
    while waiting:
        room = waiting.pop()
        waiting += sorted(found[room] - reached)
        reached |= found[room]
    assert below not in reached


def _run(tree: ast.Module) -> ast.Module:
    """What is imported when the module runs, without what only type checkers read."""
    return ast.Module(
        [n for n in tree.body if not (isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test))], []
    )


def test_no_module_imports_itself_in_a_circle() -> None:
    def module(file: str) -> str:
        return "regun." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    graph = {module(file): {name for name, _ in imports(_run(tree), by_name=False)} for file, tree in FILES.items()}
    del graph["regun.__init__"]
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name in graph and name not in done:
            for below in graph[name]:
                visit(below, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("file", [f for f in FILES if room_of(f) in OUTSIDE])
def test_pure_rooms_use_few_packages(file: str) -> None:
    used = {name.split(".")[0] for name, _ in imports(FILES[file])} - set(sys.stdlib_module_names) - {"regun"}
    assert used <= OUTSIDE[room_of(file)]


def test_help_needs_nothing_heavy() -> None:
    """Every command's arguments are known without torch, numpy or any other package."""
    child = "import sys, regun.cli as c; c.build_parser(); print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    heavy = ["torch", "numpy", "scipy", "sklearn", "matplotlib", "jinja2", "safetensors", "optuna", "ray"]
    done = subprocess.run([sys.executable, "-c", child, *heavy], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("file", [f for f in FILES if f.startswith("methods/") and not Path(f).name.startswith("_")])
def test_a_method_file_leaves_the_catalogue_alone(file: str) -> None:
    if file == "methods/rum.py":
        return  # runs other methods, by name
    assert "regun.methods._catalogue" not in {name for name, _ in imports(FILES[file])}


@pytest.mark.parametrize("call", FORBIDDEN)
def test_nobody_calls_what_is_forbidden(call: str) -> None:
    faults = [
        f"{file}:{line}"
        for file, made in CALLS.items()
        for name, line in made
        if name == call and not any(file.startswith(place) for place in FORBIDDEN[call])
    ]
    assert not faults, f"{call} is for {sorted(FORBIDDEN[call]) or 'nobody'}"


@pytest.mark.parametrize("method", METHODS)
def test_there_is_one_loop(method: str) -> None:
    users = {file for file, made in CALLS.items() for name, _ in made if name.endswith(f".{method}")}
    assert users == METHODS[method]


def test_only_the_restricted_unpickler_reads_pickles() -> None:
    users = {
        file for file, tree in FILES.items() for name, _ in imports(tree) if name.split(".")[0] in ("pickle", "dill")
    }
    assert users == {"data/cifar.py"}
    assert "pickle.Unpickler" not in {name for name, _ in CALLS["data/cifar.py"]}


def test_these_checks_see_what_they_should() -> None:
    tree = ast.parse(
        "import torch as t\nfrom pickle import load as harmless\nimport numpy as np\n"
        "def f():\n    from regun.evaluate import metrics\n    import_module(f'regun.cli.{x}')\n"
        "    t.load(1); harmless(2); np.random.seed(3); loss.backward(); safetensors.torch.load(4)\n"
    )
    assert {"regun.evaluate", "regun.cli"} <= {name for name, _ in imports(tree)}
    found = {name for name, _ in calls(tree)}
    assert {"torch.load", "pickle.load", "numpy.random.seed", "loss.backward", "safetensors.torch.load"} <= found
