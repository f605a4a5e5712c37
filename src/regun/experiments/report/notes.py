"""What stands below a table: what its signs mean, what cannot be said, and what is missing."""

from collections import Counter
from collections.abc import Iterator, Mapping

from regun.auditing import VERDICTS
from regun.experiments.study.results import Block, Results, Row, Run
from regun.render.audit_text import part_name
from regun.render.numbers import names

DIVERGED = "†"
_NAMED = 8  # missing parts named before "and so many more"


def marks(best: str, second: str) -> str:
    """What the marks say; `best` and `second` are how the format shows them."""
    return (
        f"{best}: closest to Retrain, {second}: second closest, by more than two retrained models are apart on "
        "average; among methods that have every run of the study without one that diverged."
    )


def general(results: Results, heads: Mapping[str, str]) -> Iterator[str]:
    """What a reader must be told of all tables of a study with these columns."""
    yield f"{spread(results)}. {_units(results, heads)}"
    if any(block.floors for block in results.blocks):
        yield "Noise floor: mean (largest) distance between two retrained models."
    if "verdict" in heads:
        counts = ", in runs" if len(results.seeds) * results.repeats > 1 else ""
        words = "; ".join(f"{name}, {text.meaning}" for name, text in VERDICTS.items())
        yield f"Verdict{counts}: {words}."
    absent = [name for name in results.columns if name not in results.metrics] if results.metrics else []
    if absent:
        yield f"Not in these evaluations: {', '.join(absent)}."
    if results.missing:
        rest = len(results.missing) - _NAMED
        named = "; ".join(results.missing[:_NAMED]) + (f"; and {rest} more" if rest > 0 else "")
        yield f"Not made yet, or failed ({len(results.missing)}): {named}."
    if results.paper:
        yield results.paper.note


def of_block(results: Results, block: Block, heads: Mapping[str, str]) -> Iterator[str]:
    """What a reader must be told of the table of one request."""
    yield from unmarked(block, heads)
    beside = [row.title for row in block.methods if row.unranked]
    if beside:
        yield f"Beside the others, from whom they take no marks: {names(beside)}."
    if "verdict" in heads:
        yield from powerless(block)
        yield from farthest(block)
    printed = (results.printed(block.forget, row.name, name) for row in block.rows for name in block.rankings)
    if results.paper and not any(printed):
        yield f"The paper has no numbers for forget {block.label}."
    if "runs" not in heads:
        yield from incomplete(block)
    yield from (f"{DIVERGED} Forget {block.label}: {sentence}" for sentence in diverged(block))


def unmarked(block: Block, heads: Mapping[str, str]) -> Iterator[str]:
    """Where nothing is marked though there are methods to compare: who leads together, or what is lacking."""
    ties: dict[str, list[str]] = {}
    reasons: dict[str, list[str]] = {}
    compared = {name for row in block.ranked_methods for name, cell in row.cells.items() if cell.distance is not None}
    for name in (name for name in heads if name in compared and len(block.ranked_methods) > 1):
        ranking = block.rankings[name]
        if len(ranking.leaders) > 1:
            ties.setdefault(names(block.row(row).title for row in ranking.leaders), []).append(heads[name])
        elif not ranking.marks:
            reasons.setdefault(_lacking(block, name), []).append(heads[name])
    if ties:
        told = "; ".join(f"{leaders} in {names(columns)}" for leaders, columns in ties.items())
        why = "being no farther from each other than two retrained models on average"
        yield f"Cannot be told apart (forget {block.label}), {why}: {told.removesuffix('.')}."
    for why, columns in reasons.items():
        yield f"No mark in {names(columns)} (forget {block.label}): {why}."


def powerless(block: Block) -> Iterator[str]:
    """Where the model that forgot nothing is not told from retrained ones either, not being told says nothing."""
    for row in block.rows:
        blind = row.verdicts.get("inconclusive", 0) if row.kind == "base" else 0
        if blind:
            runs = f" in {blind} of {row.judged} runs" if row.judged > 1 else ""
            yield (
                f"{row.title}, which forgot nothing, is not told from retrained models either{runs} (forget "
                f"{block.label}): no model there can be shown to have forgotten."
            )


def farthest(block: Block) -> Iterator[str]:
    """What tells the models that are outside the noise floor from retrained ones."""
    found: dict[str, list[str]] = {}
    for row in (row for row in block.rows if row.kind != "retrain"):
        runs = [run.evaluation for run in row.runs if run.evaluation is not None]
        parts = [e.worst for e in runs if e.verdict == "outside" and e.worst is not None]
        if parts:
            most = Counter(parts).most_common(1)[0][0]
            found.setdefault(part_name(most, *runs), []).append(row.title)
    if found:
        told = "; ".join(f"{part} ({names(titles)})" for part, titles in found.items())
        yield f"What tells models from retrained ones most clearly (forget {block.label}): {told}."


def incomplete(block: Block) -> Iterator[str]:
    """Who lacks runs."""
    lacking = [(row, row.planned - len(row.runs)) for row in block.rows if row.planned > len(row.runs)]
    short = [f"{row.title} ({count} of {row.planned})" for row, count in lacking]
    if short:
        yield f"Runs not made yet (forget {block.label}): {names(short)}."


def diverged(block: Block) -> Iterator[str]:
    """Who diverged, in which runs, why, and what is left of them."""
    for row in block.rows:
        runs, lost = row.diverged, [run for run in row.diverged if run.evaluation is None]
        if not runs:
            continue
        some = f"{len(runs)} of {len(row.runs)} runs ({names(run_name(row, run) for run in runs)})"
        where = f" in {some if len(runs) < len(row.runs) else f'all {len(runs)} runs'}" if len(row.runs) > 1 else ""
        reasons = dict.fromkeys(run.diverged.rstrip(".") for run in runs if run.diverged)
        why = f": {names(reasons)}" if reasons else ""
        if len(lost) == len(row.runs):
            rest = "its answers are not finite, so it cannot be judged"
        elif lost:
            rest = f"left out, its answers not being finite: {names(run_name(row, run) for run in lost)}"
        else:
            rest = "what is shown is its last finite state"
        yield f"{row.title} diverged{where}{why}; {rest}."


def spread(results: Results) -> str:
    """What stands behind a number: deviations over seeds and repeats, or the interval over examples."""
    seeds, repeats = len(results.seeds), results.repeats
    interval = f"in brackets the {100 * results.level:g} % interval over examples"
    deviation = "Mean ± sample standard deviation over"
    if seeds > 1:
        again = f" / over the {repeats} unlearning runs of each trained model" if repeats > 1 else ""
        return f"{deviation} {seeds} seeds{again}"
    if repeats > 1:
        return f"{deviation} {repeats} unlearning runs of one trained model; of a single run, {interval}"
    return f"One seed; {interval}"


def run_name(row: Row, run: Run) -> str:
    """`seed 0`, or `seed 0 run 2` where a trained model has several runs."""
    return f"seed {run.seed}" + (f" run {run.repeat + 1}" if any(r.repeat for r in row.runs) else "")


def _lacking(block: Block, name: str) -> str:
    complete = [block.row(row).title for row, _ in block.rankings[name].order]
    if len(complete) > 1:
        return "without a noise floor no lead can be told from chance"
    who = f"only {complete[0]}" if complete else "no method"
    return f"{who} has every run of the study without one that diverged"


def _units(results: Results, heads: Mapping[str, str]) -> str:
    """`In %; Gap RFTP in points; gaps computed for each run and then averaged.`"""
    units = {name: results.metrics[name].unit for name in heads if name in results.metrics}
    usual = Counter(units.values()).most_common(1)[0][0] if units else ""
    others: dict[str, list[str]] = {}
    for name, unit in units.items():
        if unit not in (usual, ""):
            others.setdefault(unit, []).append(heads[name])
    said = [f"in {usual}"] * bool(usual) + [f"{names(columns)} in {unit}" for unit, columns in others.items()]
    said += ["gaps computed for each run and then averaged"] * any(name.startswith("gap_") for name in units)
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
