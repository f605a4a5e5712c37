"""Unlearning methods, one file each; a file's name is the method's name."""

from regun.methods._contract import Choice, Needs, Range, Work
from regun.methods._registry import Method, get_method, method_names, read_method, tuned_files
from regun.methods._teacher_adapter import Teacher, as_teacher

__all__ = [
    "Choice",
    "Method",
    "Needs",
    "Range",
    "Teacher",
    "Work",
    "as_teacher",
    "get_method",
    "method_names",
    "read_method",
    "tuned_files",
]
