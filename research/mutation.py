"""Measure whether tests notice wrong code: mutate a sample of the code and run the tests that cover it.

    pip install mutmut==3.8.1
    python research/mutation.py build/mutation --per-module 12 --modules deletion/rule,auditing/roc

mutmut makes the mutants. This script chooses some and runs them; `mutmut run` would run every test once per start and
all of the 15,000 mutants. Mutants of texts and of error messages are left out, since tests do not pin wording. Each
mutant runs in a fork of one process that has imported everything, with the tests that reach its function, shortest
first: those of its module, then wider ones. Results are appended to FOLDER/results.jsonl: a second start goes on where
the first was stopped. mutmut does not change properties, decorated functions, class bodies and module constants, and no
test reaches what runs only at import ("not reached").
"""

import argparse
import ast
import copy
import difflib
import json
import os
import random
import re
import resource
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CHOSEN: dict[str, tuple[str, ...]] = {
    "deletion/rule": ("deletion/test_rule.py",),
    "auditing/roc": ("auditing/test_roc.py",),
    "auditing/intervals": ("auditing/test_intervals.py",),
    "auditing/verdict": ("deletion/test_rule.py",),
    "auditing/lira": ("auditing/test_lira.py",),
    "auditing/metrics": ("auditing/test_metrics.py", "auditing/test_evaluation.py"),
    "auditing/predictions": ("auditing/test_predictions.py", "auditing/test_metrics.py"),
    "auditing/risk": ("auditing/test_risk.py",),
    "auditing/attacks": ("auditing/test_membership.py", "auditing/test_risk.py"),
    "auditing/influence": ("auditing/test_influence.py", "auditing/test_null.py"),
    "auditing/hardness": ("auditing/test_influence.py",),
    "auditing/estimates": ("auditing/test_floor.py", "auditing/test_power.py"),
    "auditing/floor": ("auditing/test_floor.py", "auditing/test_power.py"),
    "auditing/gaps": ("auditing/test_power.py", "auditing/test_null.py", "auditing/test_verdict.py"),
    "training/fit": ("training/test_fit.py", "training/test_precision.py"),
    "training/recipes": ("training/test_fit.py", "training/test_recipes.py"),
    "training/streams": ("training/test_streams.py", "training/test_fit.py", "methods/test_sfron.py"),
    "training/best_state": ("training/test_best_state.py",),
    "training/gradients": ("training/test_gradients.py", "test_methods.py"),
    "training/forward": ("training/test_forward.py", "training/test_layout.py"),
    "methods/_unseen_targets": ("test_regun.py",),
    "methods/regun": ("test_regun.py", "methods/test_teacher.py"),
    "methods/crossfit": ("methods/test_crossfit.py", "methods/test_formulas.py"),
    "methods/sfron": ("methods/test_sfron.py",),
    "methods/fanchuan": ("methods/test_fanchuan.py",),
    "methods/uam": ("methods/test_uam.py",),
    "methods/msg": ("methods/test_msg_ct.py",),
    "methods/ct": ("methods/test_msg_ct.py",),
    "methods/bad_teacher": ("methods/test_bad_teacher.py",),
    "methods/rum": ("methods/test_rum.py",),
    "methods/noisy_finetune": ("methods/test_noisy_finetune.py",),
    "methods/_certificate": ("methods/test_noisy_finetune.py",),
    "methods/ssd": ("methods/test_formulas.py", "test_methods.py"),
    "methods/scrub": ("methods/test_formulas.py", "test_methods.py"),
    "methods/amun": ("methods/test_formulas.py", "test_methods.py"),
    "methods/_adversarial": ("test_methods.py",),
    "methods/lur": ("methods/test_formulas.py", "test_methods.py"),
    "methods/salun": ("test_methods.py",),
    "methods/neggrad": ("test_methods.py",),
    "methods/neggrad_plus": ("test_methods.py",),
    "methods/finetune": ("test_methods.py",),
    "methods/l1_sparse": ("methods/test_formulas.py", "test_methods.py"),
    "auditing/judge": ("auditing/test_verdict.py",),
    "auditing/floor_verdict": ("auditing/test_verdict.py", "auditing/test_power.py"),
    "auditing/evaluation": ("auditing/test_evaluation.py", "auditing/test_verdict.py"),
    "auditing/attack_results": ("auditing/test_membership.py", "auditing/test_risk.py"),
    "auditing/durability": ("auditing/test_relearning.py",),
    "training/divergence": ("training/test_fit.py",),
    "methods/_distill": ("methods/test_teacher.py", "methods/test_crossfit.py"),
    "methods/_fresh_weights": ("methods/test_fresh.py",),
    "methods/_from_scratch": ("methods/test_teacher.py", "methods/test_fresh.py"),
    "methods/_layers": ("methods/test_layers.py",),
    "methods/_baseline_comparison": ("methods/test_teacher.py",),
    "deletion/verify": ("deletion/test_verify.py", "deletion/test_assess.py"),
    "deletion/assess": ("deletion/test_assess.py",),
}
"""Modules in which a fault would be silent, and their tests."""
WIDER: dict[str, tuple[str, ...]] = {
    "auditing": ("auditing/test_evaluation.py", "auditing/test_verdict.py", "auditing/test_null.py"),
    "training": ("test_methods.py", "test_contract.py"),
    "methods": ("test_contract.py", "test_methods.py", "methods/test_auto.py"),
    "deletion": ("deletion/test_forget.py", "deletion/test_verify.py", "deletion/test_assess.py"),
}
"""Tests by package that a mutant runs when those of its module do not notice it."""
STATUS = {0: "survived", 1: "killed", 2: "killed"}
NOTICED = ("killed", "timeout")


@dataclass(frozen=True)
class Mutant:
    """One change of one function: `name` is mutmut's, `old` and `new` are the lines that differ."""

    module: str
    name: str
    old: str
    new: str


def write_mutants(work: Path, modules: list[str]) -> list[Mutant]:
    """Copy the repository to `work` with all mutants of these modules; return those that change code."""
    from mutmut.mutation.file_mutation import mutate_file_contents

    for name in ("src", "tests", "docs", "results", "research", "pyproject.toml", "README.md", "CHANGELOG.md"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, work / name)
    mutants: list[Mutant] = []
    for module in modules:
        path = work / "src" / "regun" / f"{module}.py"
        code = mutate_file_contents(str(path), path.read_text()).code
        path.write_text(code)
        mutants += changes(module, code)
    return mutants


def changes(module: str, code: str) -> Iterator[Mutant]:
    """Yield the mutants of a mutated file whose change is neither only in texts nor in an error that is raised."""
    functions = [
        item
        for node in ast.parse(code).body
        for item in (node.body if isinstance(node, ast.ClassDef) else [node])
        if isinstance(item, ast.FunctionDef)
    ]
    originals = {f.name.removesuffix("orig"): f for f in functions if f.name.endswith("__mutmut_orig")}
    for function in functions:
        if (match := re.fullmatch(r"(.*__mutmut_)\d+", function.name)) is None:
            continue
        original = originals[match[1]]
        lines = list(difflib.ndiff(_lines(original), _lines(function)))
        old, new = (" ; ".join(d[2:].strip() for d in lines if d.startswith(sign)) for sign in ("- ", "+ "))
        if _lines(original, texts=False) != _lines(function, texts=False) and not old.startswith("raise "):
            yield Mutant(module, f"regun.{module.replace('/', '.')}.{function.name}", old, new)


def _lines(function: ast.FunctionDef, *, texts: bool = True) -> list[str]:
    bare = copy.deepcopy(function)
    bare.name, bare.decorator_list = "f", []
    for node in ast.walk(bare):
        if not texts and isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.unparse(bare).split("\n")


def sample(mutants: list[Mutant], per_module: int, seed: int) -> list[Mutant]:
    """Return at most so many mutants per module, one of each module after the other."""
    by_module: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in random.Random(seed).sample(mutants, len(mutants)):
        by_module[mutant.module].append(mutant)
    return [by_module[m][k] for k in range(per_module) for m in CHOSEN if k < len(by_module[m])]


def in_fork(work: Path, mutant: str, tests: list[str], seconds: float, coverage: Path | None = None) -> int | None:
    """Run tests with one mutant in a fork; return pytest's exit code, or None after so many seconds of CPU time."""
    pid = os.fork()
    if pid == 0:
        import pytest
        from mutmut.mutation.trampoline import set_mutant_under_test

        os.chdir(work)
        null = os.open(os.devnull, os.O_WRONLY)
        if coverage is None:
            os.dup2(null, 1), os.dup2(null, 2)
        limit = int(time.process_time() + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        set_mutant_under_test(mutant)
        plugin = Coverage()
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--timeout=0", *tests], plugins=[plugin]))
        if coverage is not None:
            coverage.write_text(json.dumps([plugin.reached, plugin.seconds]))
        os._exit(code)
    status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None


class Coverage:
    """Records the functions that each test reaches. What a test's set-up reaches counts for its whole file: fixtures
    are shared."""

    def __init__(self) -> None:
        self.reached: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        from mutmut.state import state

        test = report.nodeid if report.when != "setup" else report.nodeid.partition("::")[0]
        self.reached.setdefault(test, []).extend(state()._stats)
        state()._stats.clear()
        if report.when == "call":
            self.seconds[report.nodeid] = report.duration


def covering(work: Path, folder: Path, tests: tuple[str, ...]) -> tuple[dict[str, set[str]], dict[str, float]]:
    """Return the tests that reach each function, and the seconds of each test; measured once."""
    file = folder / f"coverage-{'+'.join(tests).replace('/', '-')}.json"
    if not file.exists():
        code = in_fork(work, "stats", [f"tests/{test}" for test in tests], 3600, file)
        assert code == 0, f"the tests {tests} fail without a mutant (exit code {code})"
    reached, seconds = json.loads(file.read_text())
    found: dict[str, set[str]] = defaultdict(set)
    for test, functions in reached.items():
        for function in functions:
            found[function] |= {test} if "::" in test else {t for t in seconds if t.startswith(f"{test}::")}
    return found, seconds


def run(folder: Path, mutants: list[Mutant], work: Path) -> None:
    import pytest

    os.chdir(work)
    sys.path[:0] = [str(work / "src"), str(work / "tests")]
    groups = {m.module: (CHOSEN[m.module], WIDER[m.module.partition("/")[0]]) for m in mutants}
    files = sorted({f"tests/{test}" for pair in groups.values() for tests in pair for test in tests})
    pytest.main(["--collect-only", "-qqq", "-p", "no:cacheprovider", *files])  # imports everything once
    import regun

    assert Path(regun.__file__).is_relative_to(work), f"tests import {regun.__file__}, which has no mutants"
    results = folder / "results.jsonl"
    done = {json.loads(line)["name"] for line in results.read_text().splitlines()} if results.exists() else set()
    for mutant in [m for m in mutants if m.name not in done]:
        status, run_tests = "not reached", 0
        for group in groups[mutant.module]:
            reaching, seconds = covering(work, folder, group)
            tests = sorted(reaching[mutant.name.rpartition("__mutmut_")[0]], key=lambda t: seconds[t])
            if not tests or status in NOTICED:
                continue
            code = in_fork(work, mutant.name, tests, 20 + 5 * sum(seconds[t] for t in tests))
            status = "timeout" if code is None else STATUS.get(code, f"exit code {code}")
            run_tests += len(tests)
        with results.open("a") as file:
            file.write(json.dumps({**asdict(mutant), "status": status, "tests": run_tests}) + "\n")


def report(results: Path) -> None:
    """Print the score by module and the mutants that no test noticed."""
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counts[row["module"]][row["status"]] += 1
        counts["all"][row["status"]] += 1
    for module, count in sorted(counts.items()):
        noticed = sum(count[status] for status in NOTICED)
        reached = count.total() - count["not reached"]
        print(f"{module:32} {noticed:4} of {reached:4} reached  {100 * noticed / max(1, reached):3.0f} %")
    for row in rows:
        if row["status"] not in NOTICED:
            print(f"{row['name']} ({row['status']})\n  - {row['old']}\n  + {row['new']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the copy, the coverage and the results go")
    parser.add_argument("--modules", default=",".join(CHOSEN), help="separated by commas (default: all of the table)")
    parser.add_argument("--per-module", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    work = folder / "copy"
    if not work.exists():
        work.mkdir(parents=True)
        (folder / "mutants.json").write_text(
            json.dumps([asdict(m) for m in write_mutants(work, options.modules.split(","))])
        )
    mutants = [Mutant(**m) for m in json.loads((folder / "mutants.json").read_text())]
    run(folder, sample(mutants, options.per_module, options.seed), work)
    report(folder / "results.jsonl")


if __name__ == "__main__":
    main()
