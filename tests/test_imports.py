"""Who may import whom (import-linter), and what no module may call."""

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import regun

ROOT = Path(regun.__file__).parent
PROJECT = Path(__file__).parents[1]

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
    "torch.cuda.manual_seed": {"rng.py"},
    "torch.cuda.manual_seed_all": set(),
    "numpy.random.seed": {"rng.py"},
    "random.seed": {"rng.py"},
    "torch.set_num_threads": {"cli/", "experiments/study/worker.py"},
    "os.system": set(),
}
METHODS = {"backward": {"training/fit.py"}, "zero_grad": {"training/fit.py"}}
"""Methods of any object that only these files call: there is one loop that changes weights."""


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


def test_the_layers_hold() -> None:
    """The contracts in pyproject.toml: imports point down only, and methods and audit never meet."""
    lint = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert lint is not None
    done = subprocess.run([lint, "--no-cache"], cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


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


def test_help_needs_nothing_heavy() -> None:
    """Every command's arguments are known without torch, numpy or any other package."""
    child = "import sys, regun.cli as c; c.build_parser(); print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    heavy = ["torch", "numpy", "scipy", "sklearn", "matplotlib", "jinja2", "safetensors", "optuna", "ray", "rich"]
    done = subprocess.run([sys.executable, "-c", child, *heavy], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("file", [f for f in FILES if f.startswith("methods/") and not Path(f).name.startswith("_")])
def test_a_method_file_leaves_the_catalogue_alone(file: str) -> None:
    if file == "methods/rum.py":
        return  # runs other methods, by name
    assert "regun.methods._registry" not in {name for name, _ in imports(FILES[file])}


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
        "def f():\n    from regun.auditing import metrics\n    import_module(f'regun.cli.{x}')\n"
        "    t.load(1); harmless(2); np.random.seed(3); loss.backward(); safetensors.torch.load(4)\n"
    )
    assert {"regun.auditing", "regun.cli"} <= {name for name, _ in imports(tree)}
    found = {name for name, _ in calls(tree)}
    assert {"torch.load", "pickle.load", "numpy.random.seed", "loss.backward", "safetensors.torch.load"} <= found
