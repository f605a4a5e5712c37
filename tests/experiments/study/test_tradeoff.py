"""The sweep of w: which methods it touches, and that its points are the right models."""

from pathlib import Path

import pytest

from expect import error
from mini import run, study
from regun.errors import RegunError
from regun.experiments.study.collect import collect
from regun.experiments.study.tradeoff import WEIGHTS, sweep, tradeoffs

METHODS = ("regun,epochs=1,batch_size=16,w=0.3", "amun,epochs=1,batch_size=64,steps=3,failures=keep", "ssd")


def test_the_papers_grid() -> None:
    assert WEIGHTS == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    every = ("regun", "salun", "neggrad_plus", "amun", "finetune", "l1_sparse", "neggrad", "ssd", "scrub", "lur")
    swept = sweep(study(methods=every))
    counts = {name: sum(text.partition(",")[0] == name for text in swept.methods) for name in every}
    assert {name for name, n in counts.items() if n == 9} == {"regun", "salun", "neggrad_plus", "amun"}
    assert all(counts[name] == 1 for name in ("finetune", "l1_sparse", "neggrad", "ssd", "scrub", "lur"))


def test_a_sweep_keeps_the_other_settings() -> None:
    swept = sweep(study(methods=METHODS), (0.2, 0.8))
    assert swept.methods == (
        "regun,epochs=1,batch_size=16,w=0.2",
        "regun,epochs=1,batch_size=16,w=0.8",
        "amun,epochs=1,batch_size=64,steps=3,failures=keep,train_on=weighted,w=0.2",
        "amun,epochs=1,batch_size=64,steps=3,failures=keep,train_on=weighted,w=0.8",
        "ssd",
    )
    assert swept.name == "mini-tradeoff"
    titles = ["ReGUn, w 0.2", "ReGUn, w 0.8", "AMUN, w 0.2", "AMUN, w 0.8", "SSD"]
    assert [swept.title_of(name) for name in swept.rows] == titles
    assert swept.resolve(swept.methods[2], "0.1")[1].train_on == "weighted"


@pytest.mark.parametrize("weights", [(), (0.5, 0.5), (1.5,), (-0.1,)])
def test_bad_weights(weights: tuple[float, ...]) -> None:
    with error(RegunError, 0, 1):
        sweep(study(), weights)


def test_points_are_those_of_the_models(tmp_path: Path) -> None:
    plain = study(methods=METHODS)
    opened, ran, _ = run(sweep(plain, (0.2, 0.8)), tmp_path)
    assert not ran.failed
    results = collect(opened)
    (found,) = tradeoffs(results, plain, (0.2, 0.8))
    assert list(found.curves) == ["ReGUn", "AMUN"]
    assert [point.w for point in found.curves["ReGUn"]] == [0.2, 0.8]
    assert list(found.fixed) == ["SSD"]
    values = results.blocks[0].row("regun,epochs=1,batch_size=16,w=0.8").runs[0].evaluation.values()
    assert (found.curves["ReGUn"][1].utility, found.curves["ReGUn"][1].forgetting) == (
        values["test_acc"],
        values["rmia_auc"],
    )
    base = results.blocks[0].row("base").runs[0].evaluation
    assert found.noise == (base.gaps["test_acc"].floor_largest, base.gaps["rmia_auc"].floor_largest)
    retrain = results.blocks[0].row("retrain").runs[0].evaluation.values()
    assert (found.retrain.utility, found.retrain.forgetting) == (retrain["test_acc"], retrain["rmia_auc"])
    (single,) = tradeoffs(results)
    assert not single.curves
    assert len(single.fixed) == 5


def test_without_references_there_is_no_curve(tmp_path: Path) -> None:
    opened, _, _ = run(study(methods=("ssd",), references=0), tmp_path)
    assert tradeoffs(collect(opened)) == []
