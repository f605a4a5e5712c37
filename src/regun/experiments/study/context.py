"""What the tasks of a study share: the data, their splits, the store and the device."""

from dataclasses import dataclass

import torch

from regun.artifacts import Artifact, Store
from regun.artifacts.out_of_fold import CrossFitting
from regun.artifacts.setup import Setup
from regun.artifacts.trainings import Training
from regun.data.examples import Data
from regun.experiments.study.spec import Study
from regun.forget_spec import ForgetSpec
from regun.methods import Method
from regun.splits import Reserve, Splits, make_splits


@dataclass(frozen=True)
class Location:
    """Where a study runs: its store, the folder of its data sets, the device."""

    store: str
    data_dir: str | None = None
    device: str = "cpu"
    snapshot_seconds: float = 20.0


class StudyContext:
    """The data, splits, store and device of a study, loaded once per process.

    Tasks read from it; it knows no tasks. `keys` and `artifacts` are their caches, by task id.
    """

    def __init__(self, study: Study, location: Location, data: Data | None = None) -> None:
        self.study, self.location = study, location
        self.store = Store(location.store, snapshot_seconds=location.snapshot_seconds, trusted=study.user_code())
        self.device = torch.device(location.device)
        self.data = data if data is not None else self.setup(study.seeds[0]).load()[0]
        self.keys: dict[str, list[tuple[str, str]]] = {}
        self.artifacts: dict[str, Artifact] = {}
        self._reserves: dict[int, Reserve] = {}
        self._splits: dict[tuple[int, str], Splits] = {}
        self._data_of_methods: dict[str, Data] = {}

    def setup(self, split: int) -> Setup:
        """Return data, model and recipe together with the split of this seed."""
        return self.study.setup(split, self.location.data_dir)

    def reserve(self, split: int) -> Reserve:
        """Return what the split of this seed sets aside before any training."""
        if split not in self._reserves:
            self._reserves[split] = self.study.reserve(self.data.train.labels, split)
        return self._reserves[split]

    def splits(self, split: int, forget: str, spec: ForgetSpec) -> Splits:
        """Return retain, forget, held-out and validation examples; `forget` is the text of the study behind `spec`."""
        if (split, forget) not in self._splits:
            self._splits[split, forget] = make_splits(self.data.train.labels, spec, self.reserve(split))
        return self._splits[split, forget]

    def base_training(self, split: int) -> Training:
        """Return the training of the base model of a split, from the seed of the split."""
        return Training(
            data=self.data,
            trained_on=self.reserve(split).base,
            model=self.study.model_spec,
            recipe=self.study.recipe_value,
            seed=split,
        )

    def cross_fitting(self, split: int) -> CrossFitting:
        """Return what decides the out-of-fold predictions of a split."""
        return CrossFitting(training=self.base_training(split), share=self.study.table_share)

    def data_for(self, method: Method) -> Data:
        """Return the data with the input pipeline that the method trains with."""
        if method.name not in self._data_of_methods:
            self._data_of_methods[method.name] = self.setup(self.study.seeds[0]).data_for(method, self.data)
        return self._data_of_methods[method.name]
