"""The trade-off between utility and forgetting: a study swept over w, and its results as curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from regun.errors import RegunError
from regun.experiments.study.results import Block, Results, Row
from regun.experiments.study.spec import Study
from regun.methods import MethodSpec

WEIGHTS = tuple(round(0.1 * k, 1) for k in range(1, 10))


@dataclass(frozen=True)
class TradeOffPoint:
    """Utility (test accuracy) and forgetting (RMIA AUC) of a model: means and sample deviations, in %."""

    utility: float
    forgetting: float
    utility_std: float | None = None
    forgetting_std: float | None = None
    w: float | None = None


@dataclass(frozen=True)
class TradeOff:
    """The sweep of w on one forget request: curves by method title, methods without a w as single points."""

    forget: str
    label: str
    retrain: TradeOffPoint
    base: TradeOffPoint
    curves: Mapping[str, tuple[TradeOffPoint, ...]]
    fixed: Mapping[str, TradeOffPoint]
    noise: tuple[float, float] | None = None
    """The largest distance of two retrained models: in utility, in forgetting."""


def sweep(study: Study, weights: Sequence[float] = WEIGHTS) -> Study:
    """Return the study with a row per weight for every method that has a trade-off; other methods stay as they are.

    For a study that tunes, pass `OpenStudy.with_searched_settings()`: then all other settings are the tuned ones.
    """
    if not weights or not all(0 <= w <= 1 for w in weights) or len(set(weights)) < len(weights):
        raise RegunError(f"the weights of a sweep are {list(weights)}; give different numbers from 0 to 1.")
    titles: dict[str, str] = {}
    for row in study.rows.values():
        for one in _swept(study, row.text, weights):
            titles[one] = row.title + ("" if one == row.text else f", w {_weight(one):g}")
    name, methods = f"{study.name}-tradeoff", tuple(titles)
    swept = replace(study, name=name, methods=methods, unranked=(), untuned=(), titles={}, tune={}, relearn=False)
    return replace(swept, titles={row.name: titles[row.text] for row in swept.rows.values()})


def tradeoffs(results: Results, study: Study | None = None, weights: Sequence[float] = WEIGHTS) -> list[TradeOff]:
    """Return the points of all methods per forget request; with the study that was swept, its curves over w."""
    return [one for block in results.blocks if (one := _tradeoff(block, study, weights)) is not None]


def _tradeoff(block: Block, study: Study | None, weights: Sequence[float]) -> TradeOff | None:
    """Return the trade-off of one request; None until Retrain and Base have been evaluated."""
    retrain, base = (_point(block.row(name)) for name in ("retrain", "base"))
    if retrain is None or base is None:
        return None
    curves: dict[str, tuple[TradeOffPoint, ...]] = {}
    fixed: dict[str, TradeOffPoint] = {}
    if study is None:
        fixed = {row.title: point for row in block.methods if (point := _point(row))}
    else:
        rows = {row.name: row for row in block.rows}
        for method in study.rows.values():
            texts = _swept(study, method.text, weights)
            points = [_point(rows.get(t) or rows[MethodSpec.parse(t).label], _weight(t)) for t in texts]
            evaluated = tuple(point for point in points if point is not None)
            if texts != [method.text]:
                curves[method.title] = evaluated
            elif evaluated:
                fixed[method.title] = evaluated[0]
    noise = [block.floors[name].largest for name in ("test_acc", "rmia_auc") if name in block.floors]
    box = (noise[0], noise[1]) if len(noise) == 2 else None
    return TradeOff(block.forget, block.label, retrain, base, curves, fixed, box)


def _swept(study: Study, text: str, weights: Sequence[float]) -> list[str]:
    method, _ = study.resolve(text, study.forget[0])
    if method.tradeoff is None:
        return [text]
    spec = study.method_specs[text]
    rest = {**{k: v for k, v in spec.settings.items() if k != "w"}, **method.tradeoff}
    return [replace(spec, settings={**rest, "w": f"{w:g}"}).text for w in weights]


def _weight(text: str) -> float | None:
    w = MethodSpec.parse(text).settings.get("w")
    return None if w is None else float(w)


def _point(row: Row, w: float | None = None) -> TradeOffPoint | None:
    """Return test accuracy and RMIA AUC of a row; None if it lacks one of them."""
    utility, forgetting = row.cells.get("test_acc"), row.cells.get("rmia_auc")
    if utility is None or forgetting is None:
        return None
    up, across = (cell.repeat_std if cell.std is None else cell.std for cell in (utility, forgetting))
    return TradeOffPoint(utility.mean, forgetting.mean, up, across, w)
