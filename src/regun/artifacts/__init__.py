"""The only room that writes models and results to disk: artifacts named by their content, whole or absent, checked."""

from regun.artifacts.artifact import Artifact, Made, machine, reading, versions
from regun.artifacts.snapshots import Slot
from regun.artifacts.store import Findings, Store
from regun.artifacts.weights import read_weights, state_digest, weights_bytes, write_weights
from regun.files import write_file

__all__ = [
    "Artifact",
    "Findings",
    "Made",
    "Slot",
    "Store",
    "machine",
    "read_weights",
    "reading",
    "state_digest",
    "versions",
    "weights_bytes",
    "write_file",
    "write_weights",
]
