"""Unlearning methods, one file each; a file's name is the method's name.

Belongs here: methods. Does not: scores of any kind. May import: train, streams, gradients, forward, job.
A file exports `Config` (frozen settings) and `unlearn(job, config) -> Fitted`, and may export TITLE, NEEDS, SEARCH,
PRESETS, TRADEOFF (settings under which `w` trades forgetting for utility) and `work(config, forget, retain) -> Work`
(what a run will take). Adding one touches nothing else.
"""

from regun.methods._catalogue import Method, get_method, method_names, read_method
from regun.methods._contract import Choice, Needs, Range, Work

__all__ = ["Choice", "Method", "Needs", "Range", "Work", "get_method", "method_names", "read_method"]
