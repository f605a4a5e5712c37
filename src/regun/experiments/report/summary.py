"""A forget request in plain words: who is closest to retraining, is that within the noise, what did it cost.

The sentences follow the ranking of the results: no row is called the closest that the tables do not mark so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from regun.auditing import ATTACKS, UNSEEN, VERDICTS, Verdict
from regun.experiments.report.notes import diverged, farthest, incomplete, powerless
from regun.experiments.study.results import Block, Cell, Floor, Results, Row
from regun.render.numbers import duration, fixed, many, names, percent


@dataclass(frozen=True)
class Summary:
    """The first sentences, the key facts (name, value, remark) and what else a reader must know."""

    lead: str
    facts: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]


def summarise(results: Results, block: Block) -> Summary:
    """What was found for one forget request."""
    gap = block.main_gap
    judged = [row for row in block.by_gap if gap in row.cells]
    notes = tuple(_notes(block, judged, gap))
    if gap is None or not judged:
        return Summary(_nothing(block), (), notes)
    ranking = block.rankings[gap]
    leaders = [block.row(name) for name in ranking.leaders or [name for name, _ in ranking.order[:1]]]
    if not leaders:
        unranked = "No method has every run of the study without one that diverged, so none can be called the closest."
        return Summary(f"{unranked} What was measured is below.", (), notes)
    noise = block.floors.get(gap)
    lead = [_closest(results, block, leaders, gap), _against_noise(leaders, gap, noise), _by_parts(leaders, gap, noise)]
    lead += [_costs(leaders[0])] if len(leaders) == 1 else []
    facts = _facts(results, block, leaders, gap)
    return Summary(" ".join(sentence for sentence in lead if sentence), tuple(facts), notes)


def attack_label(name: str) -> str:
    """The label of an attack under the name results have it: `RMIA` for `rmia` and `rmia_val`."""
    plain = next((name.removesuffix(f"_{split}") for split in UNSEEN if name.endswith(f"_{split}")), name)
    return ATTACKS[plain].label if plain in ATTACKS else plain.replace("_", " ")


def _nothing(block: Block) -> str:
    if not block.methods:
        return "No method has been run on this request yet."
    if not any(row.judged for row in block.methods):
        return f"None of the {many(len(block.methods), 'method')} run on this request gave a model that can be judged."
    return (
        "How close the methods are to retraining cannot be told: "
        "distances need a model retrained without the forgotten examples."
    )


def _closest(results: Results, block: Block, leaders: Sequence[Row], gap: str) -> str:
    label, noise = results.metrics[gap].label, block.floors.get(gap)
    ranked, first = len(block.rankings[gap].order), leaders[0]
    value = _points(results, first, gap)
    group = f"{ranked} methods" if ranked == len(block.ranked_methods) else f"the {ranked} methods that can be ranked"
    if len(leaders) > 1:
        titles = names(row.title for row in leaders)
        some = f"Of {group}, {titles} come closest to retraining and cannot be told apart"
        return (
            f"{some if len(leaders) < ranked else f'{titles} cannot be told apart'}: their {label}, the mean distance "
            f"to Retrain, is {_range(leaders, gap)} points, no farther from each other than two retrained models are "
            "on average."
        )
    if ranked == 1:
        start = f"{first.title} has a {label} (its mean distance to Retrain) of {value}."
    elif noise is None:
        start = f"Of {group}, {first.title} has the smallest {label}, the mean distance to Retrain: {value}."
    else:
        what = f"its {label}, the mean distance to Retrain, is {value}"
        start = f"Of {group}, {first.title} comes closest to retraining: {what}."
    nothing = _base_gap(block, gap)
    if nothing is not None and nothing < first.cells[gap].mean:
        start += f" The base model, which forgot nothing, is closer still ({fixed(nothing)})."
    return start


def _range(rows: Sequence[Row], gap: str) -> str:
    """`1.50`, or `1.50 to 1.80`; rows are in order."""
    ends = [fixed(row.cells[gap].mean) for row in (rows[0], rows[-1])]
    return " to ".join(dict.fromkeys(ends))


def _points(results: Results, row: Row, gap: str) -> str:
    cell = row.cells[gap]
    text = fixed(cell.mean)
    if cell.std is not None:
        again = f", {results.repeats} runs each" if cell.repeat_std is not None else ""
        return f"{text} ± {fixed(cell.std)} points over {many(len(results.seeds), 'seed')}{again}"
    if cell.repeat_std is not None:
        return f"{text} ± {fixed(cell.repeat_std)} points over {many(len(cell.by_run), 'run')} of one trained model"
    return f"{text} points"


def _against_noise(leaders: Sequence[Row], gap: str, noise: Floor | None) -> str:
    verdicts = leaders[0].cells[gap].verdicts
    if noise is None or not verdicts:
        return (
            "Whether that is close cannot be told: the noise floor, how far retrained models are from each other, "
            "needs Retrain and at least two reference models."
        )
    apart = f"two retrained models are {fixed(noise.mean)} points apart on average and up to {fixed(noise.largest)}"
    if len(leaders) > 1:
        places: dict[str, list[str]] = {}
        for row in leaders:
            places.setdefault(_stands(row.cells[gap].verdicts), []).append(row.title)
        each = [f"{names(titles)} {_is(titles)} {where}" for where, titles in places.items()]
        return f"{'; '.join(each)}: {apart}."
    if sum(verdicts.values()) > 1:
        return f"That is {_stands(verdicts)}: {apart}."
    only: Verdict = next(name for name, n in verdicts.items() if n)
    means: dict[Verdict, str] = {
        "inside": f"{apart}, so by this measure the model cannot be told from a retrained one",
        "inconclusive": f"{apart}, and it is no farther off; but neither is the base model, which forgot nothing, so "
        "that does not show that anything was forgotten",
        "outside": f"{apart}, so the model can be told from a retrained one",
    }
    return f"That is {VERDICTS[only].phrase}: {means[only]}."


def _by_parts(leaders: Sequence[Row], gap: str, noise: Floor | None) -> str:
    """Why a row is outside although its mean distance is not large; empty where none is."""
    cells = [row.cells[gap] for row in leaders]
    if noise is None or not any(cell.verdicts.get("outside") and cell.mean <= noise.limit for cell in cells):
        return ""
    return (
        "A run is outside as soon as one part (an accuracy, the attack, the forgotten examples one by one) tells it "
        "from a retrained model, even if the mean distance does not."
    )


def _stands(verdicts: Mapping[Verdict, int]) -> str:
    """`inside the noise floor in all 3 runs`, or how many runs are where."""
    runs, given = sum(verdicts.values()), {VERDICTS[name].phrase: n for name, n in verdicts.items() if n}
    if len(given) == 1:
        return next(iter(given)) + (f" in all {runs} runs" if runs > 1 else "")
    return f"{names(f'{phrase} in {n}' for phrase, n in given.items())} of {runs} runs"


def _is(titles: Sequence[str]) -> str:
    return "is" if len(titles) == 1 else "are"


def _costs(row: Row) -> str:
    spent = [many(round(row.costs["steps"]), "step")] if "steps" in row.costs else []
    spent += [duration(row.costs["seconds"])] if "seconds" in row.costs else []
    words = {"steps": "the steps", "seconds": "the time"}
    shares = [f"{percent(row.shares[what])} of {word}" for what, word in words.items() if what in row.shares]
    tail = f", {names(shares)} of retraining" if shares else ""
    return f"It took {names(spent)}{' a run' if len(row.runs) > 1 else ''}{tail}." if spent else ""


def _facts(results: Results, block: Block, leaders: Sequence[Row], gap: str) -> Iterator[tuple[str, str, str]]:
    noise, first = block.floors.get(gap), leaders[0]
    of = f"of {many(len(block.ranked_methods), 'method')}"
    if len(leaders) > 1:
        shown = names(row.title for row in leaders) if len(leaders) < 4 else many(len(leaders), "method")
        yield "Closest to retraining", shown, f"{of}, not to be told apart"
    else:
        known = noise is not None and len(block.rankings[gap].order) > 1
        yield "Closest to retraining" if known else f"Smallest {results.metrics[gap].label}", first.title, of
    remark = f"noise floor: up to {fixed(noise.largest)}" if noise else "no noise floor"
    yield results.metrics[gap].label, _range(leaders, gap), remark
    if len(leaders) == 1 and "seconds" in first.costs:
        share = f"{percent(first.shares['seconds'])} of retraining" if "seconds" in first.shares else "of work"
        yield "Cost", duration(first.costs["seconds"]), share


def _notes(block: Block, judged: Sequence[Row], gap: str | None) -> Iterator[str]:
    if gap is not None and len(judged) > 1:
        yield from _others(block, judged, gap)
        yield from _no_better_than_base(block, judged, gap)
    yield from powerless(block)
    yield from farthest(block)
    yield from _over_forgetting(block)
    yield from diverged(block)
    yield from incomplete(block)


def _others(block: Block, judged: Sequence[Row], gap: str) -> Iterator[str]:
    """Who else is inside the noise floor in every run."""
    leaders = block.rankings[gap].leaders
    others = [row.title for row in judged if row.name not in leaders and _always(row.cells[gap], "inside")]
    if others:
        yield f"Others {VERDICTS['inside'].phrase}: {names(others)}."


def _always(cell: Cell, verdict: Verdict) -> bool:
    return bool(cell.verdicts) and cell.verdicts[verdict] == sum(cell.verdicts.values())


def _base_gap(block: Block, gap: str) -> float | None:
    return next((row.cells[gap].mean for row in block.rows if row.kind == "base" and gap in row.cells), None)


def _no_better_than_base(block: Block, judged: Sequence[Row], gap: str) -> Iterator[str]:
    nothing = _base_gap(block, gap)
    if nothing is None:
        return
    worse = [row.title for row in judged if row.cells[gap].mean >= nothing]
    if len(worse) == len(judged):
        yield f"No method is closer to retraining than the base model ({fixed(nothing)}), which forgot nothing."
    elif worse:
        yield f"{names(worse)} {_is(worse)} no closer to retraining than the base model ({fixed(nothing)})."


def _over_forgetting(block: Block) -> Iterator[str]:
    """Methods whose forgotten examples look less like members than Retrain's, with the attacks that say so."""
    found = [text for text in map(_over_forgets, block.methods) if text]
    if found:
        verb, whose = ("over-forgets", "its") if len(found) == 1 else ("over-forget", "their")
        yield (
            f"{names(found)} {verb}: to the attacks named, {whose} forgotten examples look less like members than they "
            "would after retraining, which gives them away as well."
        )


def _over_forgets(row: Row) -> str:
    """`ReGUn (RMIA, loss)`, or `ReGUn (RMIA in 2 of 3 runs)`; empty where no attack says so."""
    counts: dict[str, int] = {}
    for evaluation in (run.evaluation for run in row.runs if run.evaluation is not None):
        for label in {attack_label(name): 0 for name, found in evaluation.attacks.items() if found.over_forgetting}:
            counts[label] = counts.get(label, 0) + 1
    said = [label if n == row.judged else f"{label} in {n} of {row.judged} runs" for label, n in counts.items()]
    return f"{row.title} ({', '.join(said)})" if said else ""
