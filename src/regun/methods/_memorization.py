"""How memorised each forgotten example is, without training a model with and without it."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.errors import RegunError
from regun.training.forward import eval_logits
from regun.training.job import Job


def memorisation(job: Job, score: str) -> Tensor:
    """A number (fp64) for each example of the forget set, in its order; the larger, the more memorised.

    `confidence`: -log(p / (1 - p)) with p = p(y|x) of the job's model, which has no ties where p rounds to 1.
    `reference`: p of the job's model minus p of its teacher, which never saw the example.
    """
    if score == "confidence":
        return -_log_odds(job, job.model)
    if job.teacher is None:
        raise RegunError("rum.score is 'reference', but no teacher was given; give teacher=, or use confidence.")
    return _log_odds(job, job.model).sigmoid() - _log_odds(job, job.teacher).sigmoid()


def _log_odds(job: Job, model: nn.Module) -> Tensor:
    """log p(y|x) - log sum_{k != y} p(k|x), from the logits."""
    forget = job.indices("forget")
    logits = eval_logits(model, job.examples, forget, job.device).double()
    own = functional.one_hot(torch.from_numpy(job.examples.labels_at(forget)), logits.shape[1]).bool()
    return logits[own] - logits.masked_fill(own, -torch.inf).logsumexp(1)
