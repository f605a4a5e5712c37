"""A model of the store as a project: requests on built-in data sets and models need no project file."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from regun.data.examples import Data
from regun.data.selected import Selected
from regun.errors import StoreError
from regun.requests.project import Project
from regun.runs.audit import find_retrained
from regun.runs.training import build_like, load_model
from regun.splits import Reserve, Splits
from regun.store import Artefact, Store


def stored_project(
    base: Artefact, data: Data, kept: Reserve, store: Store, device: torch.device, family: str
) -> Project:
    """The base model with the data of its manifest; an example's id is its index in the training data."""
    if base.inputs["data"] != data.train.digest:
        raise StoreError(
            f"the base model {base.key[:12]} was trained on other data (digest {base.inputs['data'][:12]}, these have "
            f"{data.train.digest[:12]}); give the data it was trained on."
        )
    trained = base.tensors("trained_on")["indices"].numpy()

    def retrained(forgotten: frozenset[str]) -> Sequence[nn.Module]:
        """Models of the store that were trained like the base, without the forgotten examples."""
        forget = np.array(sorted(int(one) for one in forgotten), dtype=np.int64)
        parts = {"retain": np.setdiff1d(trained, forget), "forget": forget, "heldout": kept.heldout, "val": kept.val}
        found = find_retrained(store, base, Splits(**parts, total=len(data.train.labels)))
        return [load_model(artefact, device) for artefact in found]

    unseen = {"heldout": kept.heldout, "val": kept.val}
    return Project(
        model=load_model(base, device),
        train=Selected(data.train, trained),
        ids=trained.tolist(),
        heldout=Selected(data.train, kept.heldout) if len(kept.heldout) else None,
        val=Selected(data.train, kept.val) if len(kept.val) else None,
        test=data.test,
        unseen_ids={name: rows.tolist() for name, rows in unseen.items() if len(rows)},
        rebuild=lambda seed: build_like(base, seed),
        retrain=base.inputs.get("recipe") or {},
        retrained=retrained,
        family=family,
        device=device,
        num_classes=data.train.num_classes,
    )
