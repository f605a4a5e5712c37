"""Unlearning methods, one file each; a file's name is the method's name."""

from regun.methods._contract import Choice, Method, Needs, Range, Work
from regun.methods._registry import MethodSpec, get_method, method_names, tuned_files
from regun.methods._teacher_adapter import Teacher, as_teacher

__all__ = [
    "Choice",
    "Method",
    "MethodSpec",
    "Needs",
    "Range",
    "Teacher",
    "Work",
    "as_teacher",
    "get_method",
    "method_names",
    "tuned_files",
]
