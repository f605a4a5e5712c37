"""A study in full: the recipe, the input pipelines and the settings of every method."""

from collections.abc import Mapping
from typing import Any

from regun.artifacts.setup import unlearning_pipeline
from regun.data.pipelines import PIPELINES
from regun.experiments.study.spec import Study
from regun.settings import to_json

MARK = "Settings in full:"


def resolved(study: Study) -> dict[str, Any]:
    """Return what the study's short texts stand for; `methods` holds one block of settings per row and request."""
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
    """Return the same for people, as comments that may follow the study's file."""
    full = resolved(study)
    lines = [MARK, f"model    {_shown(full['model'])}", f"recipe   {_shown(full['recipe'])}"]
    for when, pipeline in full["pipeline"].items():
        about = f": {PIPELINES[pipeline].about}" if pipeline in PIPELINES else ""
        lines.append(f"{when:<8} with the input pipeline {pipeline}{about}")
    if study.tune:
        reported = "one" if study.tuned_on in study.seeds else "none"
        where = f"on seed {full['tuned_on']}, {reported} of those reported"
        lines.append(f"tuned    {where}; the search starts from the settings below")
        lines += [f"untuned  {', '.join(study.untuned)}"] if study.untuned else []
    if study.references:
        lines.append(f"references  trained from the seeds {', '.join(map(str, full['reference_seeds']))}")
    for name, blocks in full["methods"].items():
        first, *rest = blocks.items()
        lines.append(f"{name}  {_shown(first[1]) or 'no settings'}")
        for forget, block in rest:
            other = {key: value for key, value in block.items() if value != first[1][key]}
            if other:
                lines.append(f"    forget {forget}: {_shown(other)}")
    return "\n".join(f"# {line}".rstrip() for line in lines) + "\n"


def without_comments(text: str) -> str:
    """Return a study's file without such comments at its end, which may be of another version of it."""
    head, mark, rest = text.rpartition(f"# {MARK}\n")
    return head if mark and all(line.startswith("#") for line in rest.splitlines()) else text


def _shown(values: Mapping[str, Any]) -> str:
    """Return settings as text, without those that have no effect with the others or decide speed only."""
    idle = {"precision", "compile"}
    if "optimizer" in values:
        idle |= {"beta1", "beta2"} if values["optimizer"] == "sgd" else {"momentum", "nesterov"}
    if values.get("schedule", "steps") != "steps":
        idle.add("milestones")
    if not values.get("warmup_epochs", 0):
        idle |= {"warmup_epochs", "warmup_lr"}
    shown = {key: value for key, value in values.items() if value is not None and key not in idle}
    return " ".join(f"{key}={value}".replace(" ", "") for key, value in shown.items())
