"""Type aliases that several packages share."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Indices = npt.NDArray[np.int64]
"""Positions of examples in a data set, or their labels."""
Inputs = Tensor | Mapping[str, Tensor]
"""What a model is called with: one tensor, or several by name or by position ("0", "1", ...)."""
Device = torch.device | str
