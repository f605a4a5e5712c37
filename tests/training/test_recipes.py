"""Recipes: shortened in scale, and the one that is assumed where none is known."""

from dataclasses import replace

import pytest

from regun.training.recipes import RECIPES, Recipe, assumed_recipe, shorten


@pytest.mark.parametrize("share", [0.01, 0.125, 0.25, 0.6, 1.0])
@pytest.mark.parametrize("name", RECIPES)
def test_a_short_recipe_is_the_whole_one_in_scale(name: str, share: float) -> None:
    whole = RECIPES[name]
    short = shorten(whole, share)
    assert short.epochs == max(1, round(share * whole.epochs))
    assert abs(short.warmup_epochs - short.epochs / whole.epochs * whole.warmup_epochs) <= 1
    assert short.warmup_epochs < short.epochs
    times = {"epochs": whole.epochs, "warmup_epochs": whole.warmup_epochs, "milestones": whole.milestones}
    assert replace(short, **times) == whole, "only times change"
    assert shorten(whole, 1.0) == whole


def test_milestones_and_the_ends_of_the_range() -> None:
    stepped = Recipe(epochs=100, schedule="steps", milestones=(50, 75))
    assert shorten(stepped, 0.2).milestones == (10, 15)
    assert shorten(stepped, 0.01, at_least=4).epochs == 4
    assert shorten(Recipe(epochs=2), 0.5, at_least=4).epochs == 2, "never longer than the whole"
    assert shorten(Recipe(epochs=0), 0.5).epochs == 0
    assert shorten(Recipe(epochs=3, warmup_epochs=2), 0.3).warmup_epochs == 0


def test_the_assumed_recipe_has_smaller_batches_for_small_sets() -> None:
    assert [assumed_recipe(n).batch_size for n in (1, 64, 80, 512, 10**6)] == [8, 8, 10, 64, 64]
