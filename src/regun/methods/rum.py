"""RUM: split the forget set by how memorised its examples are, and unlearn each part by a method of its own.

    hard = the `share` of D_f with the largest memorisation score, easy = the rest of D_f
    theta <- easy's method on easy,   then theta <- hard's method on hard

Paper: Zhao et al. 2024, "What makes unlearning hard and what to do about it" (NeurIPS), from the least memorised part
to the most. The true score, how much likelier an example's label is for models trained with it, needs many trainings;
proxies do nearly as well (Zhao & Triantafillou 2024). `score="confidence"`: the base's log-odds of the label,
the lower the more memorised, for a label that must be learned by heart is learned last and least. `score="reference"`:
the base's probability of the label minus that of the job's teacher, a model that never saw the forget set.

`easy` and `hard` are written as methods are elsewhere, with `;` between settings, as in
`rum,easy=finetune,hard=regun@teacher;w=0.7`; `none` leaves a part alone. Both parts keep the same retain set: what is
still to be forgotten is never trained on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.errors import RegunError, SettingsError
from regun.methods._budget import first_part
from regun.methods._contract import Choice, Method, Needs, Ranges, Work
from regun.methods._registry import MethodSpec
from regun.settings import check, setting
from regun.training.fit import Fitted
from regun.training.forward import eval_logits
from regun.training.job import Job
from regun.training.recipes import Recipe
from regun.types import Indices

TITLE = "RUM"
NEEDS = Needs(heldout=True)
AXES = {"share": Choice((0.25, 0.5, 0.75)), "easy": Choice(("none", "finetune", "regun"))}
SEARCH: Ranges = {"resnet": AXES, "swin": AXES}
PRESETS: Mapping[str, Mapping[str, Any]] = {"swin": {"family": "swin"}}
PARTS: tuple[str, str] = ("easy", "hard")


@dataclass(frozen=True)
class Config:
    """Settings of RUM."""

    easy: str = setting("finetune", "method for the less memorised part, or none")
    hard: str = setting("regun", "method for the more memorised part, or none")
    share: float = setting(0.5, "share of the forget set that is hard", low=0, high=1)
    score: str = setting("confidence", "how memorisation is scored", choices=("confidence", "reference"))
    family: str = setting("resnet", "whose usual settings the two methods take", choices=("resnet", "swin"))
    epochs: int | None = setting(None, "epochs of both methods (default: their own)", low=0)
    batch_size: int | None = setting(None, "batch size of both methods (default: their own)", low=1)
    lr: float | None = setting(None, "learning rate of both methods (default: their own)", low=0)

    def __post_init__(self) -> None:
        check(self, "rum")
        if self.easy == self.hard == "none":
            raise SettingsError(["rum.easy and rum.hard are both none; name a method for at least one."])
        for part in PARTS:
            self.method(part)

    def method(self, part: str) -> tuple[Method, Any] | None:
        """Return the method of `easy` or `hard` with its settings; None for none."""
        text = str(vars(self)[part])
        if text == "none":
            return None
        spec = MethodSpec.parse(text.replace(";", ","))
        if spec.name == "rum":
            raise SettingsError([f"rum.{part} is {text!r}; RUM cannot run itself, name another method."])
        method, method_config = spec.method, spec.configure(self.family)
        common = {name: vars(self)[name] for name in ("epochs", "batch_size", "lr")}
        allowed = {field.name for field in fields(method.config)}
        return method, replace(method_config, **{n: v for n, v in common.items() if n in allowed and v is not None})


def needs(config: Config) -> Needs:
    """Return all that either method needs."""
    return Needs.either(*(method.needs_of(method_config) for method, method_config in runs(config)))


def runs(config: Config) -> list[tuple[Method, Any]]:
    """Return the methods that a run consists of."""
    return [choice for part in PARTS if (choice := config.method(part)) is not None]


def work(config: Config, forget: int, retain: int, recipe: Recipe | None) -> Work:
    """Return the work: the sum of both."""
    hard = _hard(config, forget)
    sizes = {"easy": forget - hard, "hard": hard}
    return sum((_planned(config.method(part), n, retain, recipe) for part, n in sizes.items()), Work(0, 0))


def unlearn(job: Job, config: Config) -> Fitted:
    """Unlearn the easy part, then the hard one."""
    assert job.splits is not None
    rows = dict(zip(PARTS, split(job, config), strict=True))
    todo = {part: choice for part in PARTS if (choice := config.method(part)) is not None and len(rows[part])}
    retain = len(job.indices("retain"))
    work = {part: _planned(choice, len(rows[part]), retain, job.recipe) for part, choice in todo.items()}
    total = Fitted()
    for part, (method, method_config) in todo.items():
        mine = replace(job, splits=replace(job.splits, forget=rows[part]), seed=job.derive(part))
        fitted = method.run(
            first_part(mine, work["easy"], work["hard"]) if part != list(todo)[-1] else mine, method_config
        )
        total.epochs += fitted.epochs
        total.notes[part] = {"method": method.name, "examples": len(rows[part]), **fitted.notes}
        if fitted.diverged:
            total.diverged = f"{part} ({method.name}): {fitted.diverged}"
            break
    return total


def split(job: Job, config: Config) -> tuple[Indices, Indices]:
    """Return the forget set as easy and hard examples; of equal ones the later is hard."""
    forget = job.indices("forget")
    order = torch.argsort(memorisation(job, config.score), stable=True).numpy()
    cut = len(forget) - _hard(config, len(forget))
    return np.sort(forget[order[:cut]]), np.sort(forget[order[cut:]])


def memorisation(job: Job, score: str) -> Tensor:
    """Return a score (fp64) for each example of the forget set, in its order; the larger, the more memorised.

    `confidence`: -log(p / (1 - p)) with p = p(y|x) of the job's model, which has no ties where p rounds to 1.
    `reference`: p of the job's model minus p of its teacher, which never saw the example.
    """
    if score == "confidence":
        return -_log_odds(job, job.model)
    if job.teacher is None:
        raise RegunError("rum.score is 'reference', but no teacher was given; give teacher=, or use confidence.")
    return _log_odds(job, job.model).sigmoid() - _log_odds(job, job.teacher).sigmoid()


def _log_odds(job: Job, model: nn.Module) -> Tensor:
    """Return log p(y|x) - log sum_{k != y} p(k|x), from the logits."""
    forget = job.indices("forget")
    logits = eval_logits(model, job.examples, forget, job.device).double()
    labelled = functional.one_hot(torch.from_numpy(job.examples.labels_at(forget)), logits.shape[1]).bool()
    return logits[labelled] - logits.masked_fill(labelled, -torch.inf).logsumexp(1)


def _hard(config: Config, forget: int) -> int:
    return round(config.share * forget)


def _planned(choice: tuple[Method, Any] | None, forget: int, retain: int, recipe: Recipe | None) -> Work:
    if choice is None or not forget:
        return Work(0, 0)
    method, config = choice
    return method.planned(config, forget, retain, recipe=recipe) or Work(0, 0)
