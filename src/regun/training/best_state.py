"""The one keeper of the best weights of a run."""

from torch import Tensor, nn


class BestState:
    """Copies the weights of the model with the highest score so far; of equal scores the first, or the latest."""

    def __init__(self, *, latest: bool = False) -> None:
        self.latest = latest
        self.score = float("-inf")
        self.state: dict[str, Tensor] | None = None

    def update(self, score: float, model: nn.Module) -> None:
        """Keep a copy of the model's weights if `score` is the best."""
        if score > self.score or (self.latest and score == self.score):
            self.score = score
            self.state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    def restore(self, model: nn.Module) -> None:
        """Load the best weights into `model`; without any, leave it as it is."""
        if self.state is not None:
            model.load_state_dict(self.state)
