"""Prepare the table of a project: out-of-fold predictions of all its records but the forgotten ones."""

from dataclasses import replace
from pathlib import Path

from torch import nn

from regun.arguments import InputOptions
from regun.crossfit import prepare, subset_of
from regun.data.views import Selected
from regun.deletion.folder import open_history
from regun.deletion.plan import forgotten_names, remaining_rows
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
    if project.train_function is None and project.recipe is None:
        raise RegunError(
            "the project does not say how its model is trained; give it train_function=..., your own training "
            "(dataset, seed) -> model, or retrain={'epochs': ..., 'lr': ..., 'batch_size': ...}."
        )
    opened, pseudonyms = open_project(replace(project, prepared=None)), pseudonyms or Pseudonyms()
    forgotten: set[str] = set()
    if deletions is not None:
        folder, ledger = open_history(deletions)
        forgotten = forgotten_names(folder, ledger.lines, pseudonyms, opened)
    rows = remaining_rows(opened, forgotten, {name: pseudonyms.of(texts) for name, texts in opened.ids.items()})
    named = [name for name in rows if name in opened.ids and (name != "train" or project.ids is not None)]
    ids = {name: [opened.ids[name][int(row)] for row in rows[name]] for name in named}
    unique = {name: texts for name, texts in ids.items() if len(set(texts)) == len(texts)}
    sets = {name: Selected(opened.sets[name], left) for name, left in rows.items() if len(left)}
    train, train_data = project.train_function, sets["train"]
    if train is not None:  # it gets the user's own data set, or a part of it
        whole = len(rows["train"]) == len(opened.sets["train"].labels)
        train_data = project.train if whole else subset_of(project.train, rows["train"])

    def fresh_model(seed: int) -> nn.Module:
        return reset(project.model, seed)

    return prepare(
        train,
        train_data,
        eval_data=sets.pop("train"),
        **sets,
        recipe=project.recipe if train is None else None,
        rebuild=(project.rebuild or fresh_model) if train is None else None,
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
