"""The only room that writes models and results to disk: artefacts named by their content, whole or absent, checked."""

from regun.store.artefact import Artefact, Made, machine, reading, versions
from regun.store.directory import Findings, Store
from regun.store.files import write_file
from regun.store.slot import Slot
from regun.store.weights import read_weights, state_digest, weights_bytes, write_weights

__all__ = [
    "Artefact",
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
