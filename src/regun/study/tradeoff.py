"""The trade-off between utility and forgetting: a study whose methods are swept over w, and its results as curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from regun.errors import RegunError
from regun.evaluate import spread
from regun.settings import parse_spec
from regun.study.results import Block, Entry, Point, Results, TradeOff
from regun.study.spec import Study
from regun.tune.settings_file import method_name

WEIGHTS = tuple(round(0.1 * k, 1) for k in range(1, 10))


def sweep(study: Study, weights: Sequence[float] = WEIGHTS) -> Study:
    """The study with every method that has a trade-off run once for each weight; the others stay as they are.

    A study that tunes should be frozen first (`Workshop.frozen`), so that the other settings are the tuned ones.
    """
    if not weights or not all(0 <= w <= 1 for w in weights) or len(set(weights)) < len(weights):
        raise RegunError(f"the weights of a sweep are {list(weights)}; give different numbers from 0 to 1.")
    texts = [swept for text in study.methods for swept in _swept(study, text, weights)]
    return replace(study, name=f"{study.name}-tradeoff", methods=tuple(texts), titles={}, tune={})


def tradeoffs(study: Study, results: Results, weights: Sequence[float] = WEIGHTS) -> list[TradeOff]:
    """The curves of each forget request, from the results of `sweep(study, weights)`."""
    return [_tradeoff(study, block, weights) for block in results.blocks if _complete(block)]


def points_only(results: Results) -> list[TradeOff]:
    """Where the methods of a plain study stand, without a sweep."""
    return [
        TradeOff(
            block.forget, block.label, _of(block, "retrain"), _of(block, "base"), {}, _singles(block), _noise(block)
        )
        for block in results.blocks
        if _complete(block)
    ]


def _swept(study: Study, text: str, weights: Sequence[float]) -> list[str]:
    method, _ = study.resolve(text, study.forget[0])
    if method.tradeoff is None:
        return [text]
    name, values = parse_spec(text)
    values = {**{k: v for k, v in values.items() if k != "w"}, **method.tradeoff}
    rest = "".join(f",{key}={value}" for key, value in values.items())
    return [f"{name}{rest},w={w:g}" for w in weights]


def _tradeoff(study: Study, block: Block, weights: Sequence[float]) -> TradeOff:
    curves: dict[str, tuple[Point, ...]] = {}
    fixed: dict[str, Point] = {}
    entries = {entry.name: entry for entry in block.entries}
    for name, text in study.entries().items():
        title, texts = study.title_of(name), _swept(study, text, weights)
        found = [_point(entries.get(t) or entries[method_name(t)], _weight(t)) for t in texts]
        points = tuple(point for point in found if point)
        if texts != [text]:
            curves[title] = points
        elif points:
            fixed[title] = points[0]
    return TradeOff(block.forget, block.label, _of(block, "retrain"), _of(block, "base"), curves, fixed, _noise(block))


def _weight(text: str) -> float | None:
    w = parse_spec(text)[1].get("w")
    return None if w is None else float(w)


def _complete(block: Block) -> bool:
    return all(_point(block.entry(name)) for name in ("retrain", "base"))


def _of(block: Block, name: str) -> Point:
    found = _point(block.entry(name))
    assert found is not None  # _complete has looked
    return found


def _singles(block: Block) -> Mapping[str, Point]:
    found = {entry.title: _point(entry) for entry in block.entries if entry.kind == "method"}
    return {title: point for title, point in found.items() if point}


def _point(entry: Entry, w: float | None = None) -> Point | None:
    """Test accuracy and RMIA AUC over the seeds; None where nothing could be judged."""
    judged = [run.evaluation.values() for run in entry.runs if run.evaluation is not None]
    if not judged or not all({"test_acc", "rmia_auc"} <= values.keys() for values in judged):
        return None
    utility, forgetting = (spread([values[name] for values in judged]) for name in ("test_acc", "rmia_auc"))
    return Point(utility[0], forgetting[0], utility[1], forgetting[1], w)


def _noise(block: Block) -> tuple[float, float] | None:
    """The largest differences between two retrained models, over the seeds."""
    gaps = [run.evaluation.gaps for run in block.entry("base").runs if run.evaluation is not None]
    found = [[gap[name].floor_largest for gap in gaps if name in gap] for name in ("test_acc", "rmia_auc")]
    largest = [max((value for value in values if value is not None), default=None) for values in found]
    return (largest[0], largest[1]) if largest[0] is not None and largest[1] is not None else None
