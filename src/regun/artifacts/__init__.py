"""A content-addressed store, and the runs whose results it keeps.

Import `Store` and `Artifact` from here; from the modules what makes one kind of artifact: `trainings` (`Training`),
`unlearnings` (`Unlearning`), `audits` (`Auditing`), `relearnings` (`Relearning`), `selection`, `out_models`,
`out_of_fold` (`CrossFitting`), `shadows`.
Each run lists in `inputs()` everything that decides its result; the store names the result by their digest.
Start reading at `store.Store.make`, then `trainings.train_model`. `setup.Setup` leads back from a model to its data.
"""

from regun.artifacts.artifact import Artifact, Contents, machine, reading, versions
from regun.artifacts.snapshots import SnapshotFolder
from regun.artifacts.store import Store, StoreReport
from regun.artifacts.weights import read_weights, state_digest, weights_bytes, write_weights

__all__ = [
    "Artifact",
    "Contents",
    "SnapshotFolder",
    "Store",
    "StoreReport",
    "machine",
    "read_weights",
    "reading",
    "state_digest",
    "versions",
    "weights_bytes",
    "write_weights",
]
