"""Prepare the table of a project: out-of-fold predictions of all its records but the forgotten ones."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from regun.arguments import InputOptions
from regun.crossfit import prepare, subset_of
from regun.data.views import Selected
from regun.deletion.folder import Folder
from regun.deletion.ledger import check_intact, read_ledger
from regun.deletion.plan import forgotten_names
from regun.deletion.project import USER_CODE, Project, no_exit, open_project
from regun.deletion.pseudonyms import Pseudonyms
from regun.errors import RegunError
from regun.methods._fresh_weights import reset
from regun.prepared import Prepared


@no_exit(USER_CODE)
def prepare_table(
    project: Project,
    path: Path,
    *,
    folds: int = 4,
    repeats: int = 1,
    share: float = 0.25,
    top: int | None = None,
    seed: int = 0,
    deletions: Path | None = None,
    pseudonyms: Pseudonyms | None = None,
    progress: bool = False,
) -> Prepared:
    """Prepare the project's table and write it to `path`; records that requests in `deletions` forgot are left out.

    The project's `train_function` trains the models or, without, regun's loop by its `retrain`. Records are known by
    id where every record has its own; otherwise by content, and all records of one id share a fold.
    """
    opened = open_project(replace(project, prepared=None))
    forgotten: set[str] = set()
    if deletions is not None:
        folder = Folder(deletions.resolve())
        ledger = read_ledger(folder.ledger)
        check_intact(ledger, folder.ledger)
        if not ledger.lines:
            raise RegunError(f"{deletions} has no ledger with requests; name the folder that regun forget wrote.")
        forgotten = forgotten_names(folder, ledger.lines, pseudonyms or Pseudonyms(), opened)
    rows, ids = dict[str, Any](), dict[str, list[str]]()
    for name, examples in opened.sets.items():
        known = opened.ids.get(name, [])
        written = (pseudonyms or Pseudonyms()).of(known)
        left = [row for row in range(len(examples.labels)) if not known or written[row] not in forgotten]
        rows[name] = np.array(left, dtype=np.int64)
        if known and (name != "train" or project.ids is not None):
            ids[name] = [known[row] for row in left]
    unique = {name: some for name, some in ids.items() if len(set(some)) == len(some)}
    train, recipe, rebuild = project.train_function, None, None
    if train is None:
        recipe, rebuild = project.recipe, project.rebuild or _fresh_like(project.model)
        if recipe is None:
            raise RegunError(
                "the project does not say how its model is trained; give it train_function=..., your own training "
                "(dataset, seed) -> model, or retrain={'epochs': ..., 'lr': ..., 'batch_size': ...}."
            )
    whole = len(rows["train"]) == len(opened.sets["train"].labels)
    own = project.train if whole else subset_of(project.train, rows["train"]) if train is not None else None
    return prepare(
        train,
        own if train is not None and own is not None else Selected(opened.sets["train"], rows["train"]),
        eval_data=Selected(opened.sets["train"], rows["train"]),
        **{name: Selected(opened.sets[name], rows[name]) for name in opened.unseen if len(rows[name])},
        recipe=recipe,
        rebuild=rebuild,
        folds=folds,
        repeats=repeats,
        share=share,
        top=top,
        ids=unique or None,
        groups=ids["train"] if "train" in ids and "train" not in unique else None,
        seed=seed,
        workers=1,
        path=path,
        inputs=InputOptions(device=opened.device, num_classes=opened.sets["train"].num_classes),
        progress=progress,
    )


def _fresh_like(model: nn.Module) -> Callable[[int], nn.Module]:
    """Return the function that draws new weights for a model of the same architecture."""

    def rebuild(seed: int) -> nn.Module:
        return reset(model, seed)

    return rebuild
