"""A forget request in plain words: who is closest to retraining, is that within the noise, what did it cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regun.evaluate import FloorSummary, describe
from regun.study.report.numbers import (
    Cell,
    attack_label,
    cell,
    cost,
    diverged,
    fixed,
    floor,
    judged,
    main_gap,
    many,
    methods,
    names,
    of_kind,
    percent,
    ranked,
    seconds,
    share,
)
from regun.study.results import Block, Entry, Results


@dataclass(frozen=True)
class Summary:
    """The first sentences, the key facts (name, value, remark) and what else a reader must know."""

    lead: str
    facts: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]


def summarise(results: Results, block: Block) -> Summary:
    """What was found for one forget request."""
    gap = main_gap(block)
    order = ranked(block, gap, methods(block)) if gap else []
    notes = tuple(_notes(results, block, order, gap))
    if gap is None or not order:
        return Summary(_nothing(block), (), notes)
    entry, closest = order[0]
    noise = floor(block, gap)
    sentences = [_closest(block, order, gap), _against_noise(closest, noise), _costs(block, entry)]
    return Summary(" ".join(s for s in sentences if s), tuple(_facts(block, entry, closest, noise)), notes)


def _nothing(block: Block) -> str:
    found = methods(block)
    if not found:
        return "No method has been run on this request yet."
    if not any(judged(entry) for entry in found):
        return f"None of the {many(len(found), 'method')} run on this request gave a model that can be judged."
    return (
        "How close the methods are to retraining cannot be told: "
        "distances need a model retrained without the forgotten examples."
    )


def _closest(block: Block, order: Sequence[tuple[Entry, Cell]], gap: str) -> str:
    entry, closest = order[0]
    level = [e.title for e, c in order if fixed(c.value) == fixed(closest.value)]
    metric, value = describe(gap), _points(closest)
    base = of_kind(block, "base")
    nothing = cell(block, base, gap) if base else None
    if len(level) > 1:
        start = f"{names(level)} are equally close to retraining, with a {metric.label} of {value}."
    elif len(order) == 1:
        start = f"{entry.title} has a {metric.label} (its mean distance to Retrain) of {value}."
    else:
        tried = len(methods(block))
        group = f"{tried} methods" if tried == len(order) else f"the {len(order)} methods that can be judged"
        of = f"Of {group}, {entry.title} comes closest to retraining"
        start = f"{of}: its {metric.label}, the mean distance to Retrain, is {value}."
    if nothing is not None and nothing.value < closest.value and len(level) == 1:
        start += f" The base model, which forgot nothing, is closer still ({fixed(nothing.value)})."
    return start


def _points(found: Cell) -> str:
    text = f"{fixed(found.value)} points"
    if found.seeds == 1:
        return text
    return f"{fixed(found.value)} ± {fixed(found.deviation or 0.0)} points over {found.seeds} seeds"


def _against_noise(closest: Cell, noise: FloorSummary | None) -> str:
    if noise is None or not closest.verdicts:
        return (
            "Whether that is close cannot be told: the noise floor, how far retrained models are from each other, "
            "needs Retrain and at least two reference models."
        )
    apart = f"two retrained models are {fixed(noise.mean)} points apart on average and up to {fixed(noise.largest)}"
    if len(closest.verdicts) > 1:
        return _over_seeds(closest, apart)
    verdict = next(iter(closest.verdicts))
    return {
        "indistinguishable": f"That is inside the noise floor: {apart}, so by this measure the model cannot be told "
        "from a retrained one.",
        "borderline": f"That is at the edge of the noise floor: {apart}; it is farther off than any pair of them, but "
        f"one more retrained model could be as far (limit {fixed(noise.limit)}).",
        "distinguishable": f"That is outside the noise floor: {apart}, so the model can be told from a retrained one.",
    }[verdict]


def _over_seeds(closest: Cell, apart: str) -> str:
    seeds, inside = len(closest.verdicts), closest.verdicts.count("indistinguishable")
    edge = closest.verdicts.count("borderline")
    if inside == seeds:
        return f"That is inside the noise floor in all {seeds} seeds: {apart}."
    if closest.verdicts.count("distinguishable") == seeds:
        return f"That is outside the noise floor in all {seeds} seeds: {apart}."
    counts = [f"inside it in {inside}", f"at its edge in {edge}", f"outside it in {seeds - inside - edge}"]
    kept = [text for text, n in zip(counts, (inside, edge, seeds - inside - edge), strict=True) if n]
    return f"Measured against the noise floor, it is {names(kept)} of {seeds} seeds: {apart}."


def _costs(block: Block, entry: Entry) -> str:
    time, steps = cost(entry, "seconds"), cost(entry, "steps")
    spent = [many(round(steps.value), "step")] if steps else []
    spent += [seconds(time.value)] if time else []
    if not spent:
        return ""
    shares = [
        f"{percent(value)} of {what}"
        for name, what in (("steps", "the steps"), ("seconds", "the time"))
        if (value := share(block, entry, name)) is not None
    ]
    tail = f", {names(shares)} of retraining" if shares else ""
    return f"It took {names(spent)}{' a seed' if len(entry.runs) > 1 else ''}{tail}."


def _facts(block: Block, entry: Entry, closest: Cell, noise: FloorSummary | None) -> Iterator[tuple[str, str, str]]:
    yield "Closest to retraining", entry.title, f"of {many(len(methods(block)), 'method')}"
    gap = describe(main_gap(block) or "gap_rftp").label
    remark = f"noise floor: up to {fixed(noise.largest)}" if noise else "no noise floor"
    yield gap, fixed(closest.value), remark
    if (time := cost(entry, "seconds")) is not None:
        part = share(block, entry, "seconds")
        yield "Cost", seconds(time.value), f"{percent(part)} of retraining" if part is not None else "of work"


def _notes(results: Results, block: Block, order: Sequence[tuple[Entry, Cell]], gap: str | None) -> Iterator[str]:
    if gap is not None and len(order) > 1:
        yield from _others_inside(order)
        yield from _no_better_than_base(block, order, gap)
    yield from _over_forgetting(block)
    yield from (_divergence(entry) for entry in block.entries if diverged(entry))
    for entry in block.entries:
        lacking = [seed for seed in results.seeds if seed not in {run.seed for run in entry.runs}]
        if lacking:
            word = "seed" if len(lacking) == 1 else "seeds"
            yield f"{entry.title} is incomplete: {word} {names(str(s) for s in lacking)} not made yet."


def _others_inside(order: Sequence[tuple[Entry, Cell]]) -> Iterator[str]:
    inside = [e.title for e, c in order[1:] if c.verdicts and set(c.verdicts) == {"indistinguishable"}]
    if inside:
        yield f"Inside the noise floor as well: {names(inside)}."
    edge = [e.title for e, c in order[1:] if c.verdicts and set(c.verdicts) == {"borderline"}]
    if edge:
        yield f"At its edge: {names(edge)}."


def _no_better_than_base(block: Block, order: Sequence[tuple[Entry, Cell]], gap: str) -> Iterator[str]:
    base = of_kind(block, "base")
    nothing = cell(block, base, gap) if base else None
    if nothing is None:
        return
    worse = [e.title for e, c in order if c.value >= nothing.value]
    if len(worse) == len(order):
        yield f"No method is closer to retraining than the base model ({fixed(nothing.value)}), which forgot nothing."
    elif worse:
        verb = "is" if len(worse) == 1 else "are"
        yield f"{names(worse)} {verb} no closer to retraining than the base model ({fixed(nothing.value)})."


def _over_forgetting(block: Block) -> Iterator[str]:
    """Methods whose forgotten examples look less like members than Retrain's, with the attacks that say so."""
    found = [text for text in map(_over_forgets, methods(block)) if text]
    if found:
        verb, whose = ("over-forgets", "its") if len(found) == 1 else ("over-forget", "their")
        yield (
            f"{names(found)} {verb}: to the attacks named, {whose} forgotten examples look less like members than they "
            "would after retraining, which gives them away as well."
        )


def _over_forgets(entry: Entry) -> str:
    """`ReGUn (RMIA, loss)`, or `ReGUn (RMIA in 2 of 3 seeds)`; empty where no attack says so."""
    counts: dict[str, int] = {}
    for evaluation in judged(entry):
        for label in {attack_label(name): 0 for name, found in evaluation.attacks.items() if found.over_forgetting}:
            counts[label] = counts.get(label, 0) + 1
    seeds = len(judged(entry))
    said = [label if n == seeds else f"{label} in {n} of {seeds} seeds" for label, n in counts.items()]
    return f"{entry.title} ({', '.join(said)})" if said else ""


def _divergence(entry: Entry) -> str:
    runs = diverged(entry)
    where = ""
    if len(entry.runs) > 1:
        listed = names(str(run.seed) for run in runs)
        some = f" in {len(runs)} of {len(entry.runs)} seeds (seed{'s' if len(runs) > 1 else ''} {listed})"
        where = f" in all {len(runs)} seeds" if len(runs) == len(entry.runs) else some
    reasons = list(dict.fromkeys(run.diverged for run in runs if run.diverged))
    why = f": {names(reason.rstrip('.') for reason in reasons)}" if reasons else ""
    lost = [run for run in runs if run.evaluation is None]
    if len(lost) == len(runs):
        one = "Its answers are not finite, so it cannot be judged."
        rest = one if len(lost) == len(entry.runs) else "It gives no finite answers there, so those seeds are left out."
    elif lost:
        listed = names(str(run.seed) for run in lost)
        rest = f"It gives no finite answers for seed{'s' if len(lost) > 1 else ''} {listed}, left out of its numbers."
    else:
        rest = "What is shown is its last finite state."
    return f"{entry.title} diverged{where}{why}. {rest}"
