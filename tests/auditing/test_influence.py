"""How much influence is left: right at every number of records where the truth is known, and unmoved by what it is not."""

import json
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from worlds import World, from_odds, half_way, said

from expect import assert_names, error
from regun.auditing import Influence, Metric, NoiseFloor, Predictions, evaluate
from regun.auditing.gaps import INFLUENCE, judge_gaps
from regun.auditing.hardness import HardnessIndex, _drawn_effects, _normal_effects
from regun.auditing.influence import DRAWS, _judge_effects, influence
from regun.errors import AuditError

Odds = Mapping[str, np.ndarray]


def moved(signals: Mapping[str, Predictions], by: float, scale: float = 1.0) -> dict[str, Predictions]:
    return said({name: scale * (one.true_logit + by) for name, one in signals.items()})


def answers(n: int, repeats: int, outs: int = 3, **more: float) -> dict[str, Counter[str]]:
    """What is said of models whose truth is known, over many worlds."""
    found: dict[str, Counter[str]] = {}
    for seed in range(repeats):
        world = World(seed, n, **more)
        never, base, again = world.models(outs), world.odds(1.0), world.odds()
        kinds = {
            "base": said(base),
            "odds half-way": said({name: (base[name] + again[name]) / 2 for name in base}),
            "outputs half-way": half_way(base, again),
            "retrained": said(again),
        }
        if n > 1:
            kinds["half of the records"] = world.model(0.5)
        for kind, model in kinds.items():
            answer = influence(model, said(base), never, seed=seed).verdict
            found.setdefault(kind, Counter())[answer] += 1
    return found


@pytest.mark.parametrize("n", [1, 2, 5, 10, 30])
def test_models_that_forgot_nothing_or_half_are_hardly_ever_called_forgotten(n: int):
    """At most 5 % of requests of any size, tried on 60: 8 would have a chance of 1 in 100; and base never."""
    found = answers(n, 60)
    assert found["base"]["forgotten"] == 0
    for kind in found.keys() - {"base", "retrained"}:
        assert found[kind]["forgotten"] < 8, (kind, found[kind])
    wrong = found["retrained"]["remembered"] + found["retrained"]["over-forgotten"]
    assert wrong < 8  # told apart from what it is, in 5 % of cases


@pytest.mark.parametrize(
    ("after", "verdict"), [(0.0, "forgotten"), (-0.8, "inconclusive"), (0.3, "inconclusive"), (1.0, "remembered")]
)
def test_forgotten_needs_an_interval_within_the_allowed_share_on_both_sides(after: float, verdict: str) -> None:
    """Influence before is 1 by construction, and noise does not tell the influence after from 0."""
    drawn = np.random.default_rng(0).normal(0.0, 0.1, (2, DRAWS))
    drawn[1] *= {0.3: 2.0, -0.8: 5.0}.get(after, 1.0)
    part = _judge_effects("test", 100, np.array([1.0, after]), drawn, np.zeros(DRAWS), 1)
    assert part.verdict == verdict
    assert part.p_before < 0.01


def test_a_retrained_model_is_called_forgotten_once_there_are_enough_records():
    assert answers(40, 20)["retrained"]["forgotten"] >= 16
    few = answers(1, 20)
    assert few["retrained"]["forgotten"] < 10  # one record seldom says enough, and then nobody claims it does
    assert few["retrained"]["inconclusive"] >= 8


def test_a_member_that_is_no_surer_than_others_gives_no_power():
    found = answers(20, 10, member=-20.0)
    assert all(count["inconclusive"] >= 9 for count in found.values())


def test_below_what_unseen_records_get_is_over_forgotten():
    world = World(0, 60)
    never, base, low = world.models(3), world.model(1.0), world.odds()
    low["forget"] = low["forget"] - 3.0
    found = influence(said(low), base, never)
    assert found.verdict == "over-forgotten"
    assert found.share.value < 0
    assert "less sure" in found.why


def test_an_unchanged_model_has_all_of_the_influence_left():
    world = World(1, 30)
    base = world.model(1.0)
    found = influence(base, base, world.models(2))
    assert found.share.value == pytest.approx(100.0)
    assert [part.share.value for part in found.parts] == pytest.approx([100.0] * 4)
    assert (found.verdict, found.halved, found.records, found.out_models) == ("remembered", 0, 30, 2)
    assert found.p("before") == found.p("after") < 0.05
    assert found.measurable


def test_shifts_of_a_whole_model_and_the_scale_of_the_out_models_do_not_matter():
    """A model that is surer everywhere remembers nothing by that; crude out models say how hard records are, too."""
    world = World(2, 12)
    never, base, after = world.models(2), world.model(1.0), world.model(0.5)
    plain = influence(after, base, never)
    for other in (
        influence(moved(after, 1.5), base, never),
        influence(after, moved(base, -1.0), never),
        influence(after, base, [moved(out, 0.7, 0.4) for out in never]),
    ):
        for mine, theirs in zip(plain.parts, other.parts, strict=True):
            assert theirs.after.value == pytest.approx(mine.after.value, abs=1e-6)
            assert theirs.before.value == pytest.approx(mine.before.value, abs=1e-6)
            assert theirs.p_after == pytest.approx(mine.p_after, abs=1e-9)


def test_every_unseen_set_is_judged_and_any_of_them_can_say_no():
    """A method that trained towards test looks innocent there; against the other sets it is told apart."""
    world = World(3, 60)
    never, base = world.models(3), world.model(1.0)
    cheat = world.odds(1.0)
    cheat["test"] = np.maximum(cheat["test"], np.random.default_rng(0).normal(6, 1, len(cheat["test"])))
    found = influence(said(cheat), base, never)
    by_set = {part.against: part for part in found.parts}
    assert list(by_set) == ["unseen", "test", "heldout", "val"]
    assert by_set["test"].verdict != "remembered"
    assert by_set["val"].verdict == "remembered"
    assert found.verdict == "remembered"
    alone = influence(said(cheat), base, never, unseen=["test"])
    assert [part.against for part in alone.parts] == ["test"]
    assert alone.verdict != "remembered"


def test_a_model_half_way_in_its_outputs_never_halves_a_confidence():
    world = World(4, 200)
    base, again = world.odds(1.0), world.odds()
    half = influence(half_way(base, again), said(base), world.models(3))
    assert half.halved == 0
    assert half.verdict != "forgotten"
    assert influence(said(again), said(base), world.models(3)).halved > 20


def test_one_out_model_one_record_and_classes_that_are_missing():
    rng = np.random.default_rng(0)

    def model(member: float) -> dict[str, Predictions]:
        made: dict[str, Predictions] = {}
        for name, (size, classes) in {"forget": (1, [4]), "test": (80, range(4)), "val": (40, [0])}.items():
            labels = rng.choice(list(classes), size)
            logits = rng.normal(0, 1, (size, 5))
            logits[np.arange(size), labels] += member if name == "forget" else 1.0
            made[name] = Predictions.from_logits(logits, labels, np.arange(size))
        return made

    after, before, out = model(1.0), model(9.0), model(1.0)
    names = {name: Predictions(out[name].log_probs, after[name].labels, after[name].indices) for name in out}
    prior = {name: Predictions(before[name].log_probs, after[name].labels, after[name].indices) for name in out}
    found = influence(after, prior, [names])
    assert found.records == 1
    assert all(0 <= part.p_after <= 1 for part in found.parts)


def test_answers_that_round_to_certainty_and_tiny_sets_are_no_trouble():
    certain = {name: from_odds(np.full(size, 1e5)) for name, size in {"forget": 3, "test": 50, "val": 5}.items()}
    found = influence(certain, certain, [certain])
    assert found.verdict == "inconclusive"
    assert_names(found.why, "before", "power")
    assert {part.against: part.unseen for part in found.parts} == {"unseen": 55, "test": 50}  # 5 alone say nothing
    text = json.dumps(found.to_json(), allow_nan=False)
    assert Influence.from_json(json.loads(text)) == found


def test_where_too_few_records_are_unseen_nothing_was_measured_and_that_is_said():
    world = World(0, 40, unseen={"test": 12, "val": 7})
    never, base = world.models(3), world.model(1.0)
    found = influence(base, base, never)
    assert (found.verdict, found.parts, found.measurable) == ("inconclusive", (), False)
    assert found.p("before") is found.p("after") is None
    assert_names(found.why, 40, 20, "test", "val", 19)
    assert_names(influence(base, base, never, unseen=["test"]).why, 40, 20, "test", 12)
    assert Influence.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_look_that_was_not_taken_decides_no_verdict():
    """Neither as the part that is farthest off nor as one more look, which would widen the limits of the others."""
    world = World(0, 40, unseen={"test": 12})
    base, never = world.model(1.0), world.models(4)
    found = evaluate(base, never[0], never[1:], before=base, bootstrap=0)
    assert INFLUENCE not in {part.name for part in found.judgement.parts}
    assert "influence_left" not in found.numbers
    floor, far = NoiseFloor(3, {"a": (1.0, 2.0, 3.0), "gap": (1.0, 2.0, 3.0)}), {"a": 8.0, "gap": 8.0}
    assert floor.summary("a").limit < 8 < floor.summary("a", comparisons=2).limit
    gaps = [
        judge_gaps(far, far, floor, {"gap": Metric("gap", terms=("a",))}, influence=left)
        for left in (None, found.influence)
    ]
    assert gaps[0] == gaps[1]
    assert (gaps[1]["gap"].verdict, gaps[1]["gap"].worst) == ("failed", "a")


def test_differences_that_are_rounding_decide_nothing():
    """A model that says the same of everything, but for the last bit of a float on the forgotten records."""
    world = World(0, 20)
    same = {name: np.full(len(values), 2.0) for name, values in world.odds().items()}
    same["forget"] = same["forget"] + 1e-12
    found = influence(said(same), said(world.odds(1.0)), world.models(3))
    assert {part.p_after for part in found.parts} == {1.0}


def test_shares_are_said_as_people_say_them():
    """Estimates below none, which noise makes, are none."""
    world = World(3, 40)
    never, base = world.models(3), said(world.odds(1.0))
    for seed in range(6):
        found = influence(said(world.odds()), base, never, seed=seed)
        assert "-" not in found.why.split("(p =")[0].replace("half-way", "")
        if found.verdict == "forgotten" and found.share.value <= 0:
            assert found.why.startswith("None of the influence of the 40 forgotten records is left, at most ")


def test_large_sets_take_seconds_and_little_memory():
    world = World(5, 20_000, retain=10, unseen={"test": 200_000})
    found = influence(world.model(), world.model(1.0), world.models(1))
    assert found.verdict == "forgotten"
    assert abs(found.share.value) < 2


def test_draws_of_many_records_follow_the_normal_that_replaces_them():
    world = World(6, 250)
    out, models = world.model(), [world.model(1.0), world.model()]
    ladder = HardnessIndex.of(out["forget"].true_logit, out["test"].true_logit)
    found = [ladder.residuals(m["forget"].true_logit, m["test"].true_logit) for m in models]
    weights = np.full(250, 1 / 250)
    drawn, normal = (
        f(ladder, found, weights, 4000, np.random.default_rng(0)) for f in (_drawn_effects, _normal_effects)
    )
    itself = sum(found[0].forget) / 250 / (ladder.as_hard + 1)  # draws may hold the record itself, 1 in 301
    assert drawn[0].mean() - itself == pytest.approx(normal[0].mean(), abs=0.02)
    assert drawn[1].std() == pytest.approx(normal[1].std(), rel=0.06)
    assert np.quantile(drawn[1], 0.975) == pytest.approx(np.quantile(normal[1], 0.975), abs=0.04)


def test_records_weigh_by_the_spread_of_the_audited_model_not_of_the_one_before():
    """w = gain / (spread^2 + gain^2 / 4) from its definition; the audited model is erratic on hard records only."""
    rng = np.random.default_rng(0)
    hard = {"forget": np.linspace(-2, 2, 40), "test": rng.uniform(-3, 3, 4000)}
    noise = {name: rng.normal(size=len(x)) for name, x in hard.items()}
    before = {name: x + 0.3 * noise[name] for name, x in hard.items()}
    after = {name: x + np.where(x > 0, 4.0, 0.1) * noise[name] for name, x in hard.items()}
    before["forget"] = hard["forget"] + 3.0
    after["forget"] = hard["forget"] + np.where(hard["forget"] > 0, 4.0, 0.0)
    member = {"retain": np.full(10, 5.0)}
    found = influence(said(after), said({**before, **member}), [said(hard)])
    index = HardnessIndex.of(hard["forget"], hard["test"])
    was, now = (index.residuals(odds["forget"], odds["test"]) for odds in (before, after))
    gain = 5.0 - was.usual
    effects = {}
    for name, spread in (("after", now.spread), ("before", was.spread)):
        weights = gain / (spread**2 + gain**2 / 4)
        effects[name] = float(weights @ now.forget / weights.sum())
    assert abs(effects["after"] - effects["before"]) > 1.0
    assert found.parts[0].after.value == pytest.approx(effects["after"], abs=0.3)  # less the mean of the null's draws


def test_what_is_usual_is_read_off_a_line_without_the_record_itself():
    """On a straight line there is nothing left; one record off it is seen whole, and its neighbours hardly move."""
    x = np.linspace(-3, 3, 200)
    ladder = HardnessIndex.of(np.array([-2.9, 0.0, 2.9]), x)
    straight = ladder.residuals(np.array([-4.8, 1.0, 6.8]), 1.0 + 2.0 * x)
    np.testing.assert_allclose(straight.forget, 0.0, atol=1e-9)
    np.testing.assert_allclose(straight.unseen, 0.0, atol=1e-9)
    bent = 1.0 + 2.0 * x
    bent[100] += 5.0
    assert ladder.residuals(np.zeros(3), bent).unseen[100] == pytest.approx(5.0)


def test_faults_are_named():
    world = World(7, 5)
    model = world.model()
    with error(AuditError, "1"):
        influence(model, model, [])
    with error(AuditError, "retain"):
        influence(model, model, [model], unseen=["retain"])
    with error(AuditError, "0", "val"):
        influence(model, model, [{name: model[name] for name in ("forget", "test", "heldout")}])
    with error(AuditError, "before", "forget"):
        influence(model, {name: model[name] for name in ("test", "heldout", "val")}, [model])
