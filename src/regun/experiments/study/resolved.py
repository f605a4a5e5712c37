"""A study with nothing left unsaid: the recipe, the input pipelines and the settings of every method."""

from collections.abc import Iterator, Mapping
from typing import Any

from regun.artifacts.setup import unlearning_pipeline
from regun.data.pipelines import PIPELINES
from regun.experiments.study.spec import Study
from regun.settings import to_json

MARK = "What the texts above stand for:"


def resolved(study: Study) -> dict[str, Any]:
    """What the study's short texts stand for; `methods` holds one block of settings a row and request."""
    return {
        "model": {"name": study.model_spec.name, **study.model_spec.describe()["settings"]},
        "recipe": to_json(study.recipe_value),
        "pipeline": {"train": study.pipeline_name, "unlearn": unlearning_pipeline(study.pipeline_name)},
        "tuned_on": study.tuned_on if study.tune else None,
        "reference_seeds": list(study.reference_seeds),
        "methods": {
            row.name: {forget: to_json(study.resolve(row.text, forget)[1]) for forget in study.forget}
            for row in study.rows.values()
        },
    }


def as_comments(study: Study) -> str:
    """The same for people, as lines of comment that may follow the study's file."""
    return "\n".join(f"# {line}".rstrip() for line in _lines(study)) + "\n"


def without_comments(text: str) -> str:
    """A study's file without such lines at its end, which may be those of another version of it."""
    head, mark, rest = text.rpartition(f"# {MARK}\n")
    return head if mark and all(line.startswith("#") for line in rest.splitlines()) else text


def _lines(study: Study) -> Iterator[str]:
    found = resolved(study)
    yield MARK
    yield f"model    {_shown(found['model'])}"
    yield f"recipe   {_shown(found['recipe'])}"
    for when, preset in found["pipeline"].items():
        about = f": {PIPELINES[preset].about}" if preset in PIPELINES else ""
        yield f"{when:<8} with the input pipeline {preset}{about}"
    if study.tune:
        yield f"tuned    on seed {found['tuned_on']}, {_reported(study)}; the search starts from the settings below"
    if study.references:
        yield f"references  trained from the seeds {', '.join(map(str, found['reference_seeds']))}"
    for name, blocks in found["methods"].items():
        first, *others = blocks.items()
        yield f"{name}  {_shown(first[1]) or 'no settings'}"
        for forget, block in others:
            other = {key: value for key, value in block.items() if value != first[1][key]}
            if other:
                yield f"    forget {forget}: {_shown(other)}"


def _reported(study: Study) -> str:
    return "one of those reported" if study.tuned_on in study.seeds else "none of those reported"


def _shown(values: Mapping[str, Any]) -> str:
    idle = {name for names in _idle(values) for name in names}
    told = {key: value for key, value in values.items() if value is not None and key not in idle}
    return " ".join(f"{key}={value}".replace(" ", "") for key, value in told.items())


def _idle(values: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Settings that have no effect beside the others, and those that decide speed only."""
    yield ("precision", "compile")
    if "optimizer" in values:
        yield ("beta1", "beta2") if values["optimizer"] == "sgd" else ("momentum", "nesterov")
    if values.get("schedule", "steps") != "steps":
        yield ("milestones",)
    if not values.get("warmup_epochs", 0):
        yield ("warmup_epochs", "warmup_lr")
