"""Data sets: examples that can be fetched by number, and how they become model inputs."""

from regun.data.arrays import ArrayExamples
from regun.data.examples import Batch, Data, Examples, InputPipeline
from regun.data.tensors import TensorExamples

__all__ = ["ArrayExamples", "Batch", "Data", "Examples", "InputPipeline", "TensorExamples"]
