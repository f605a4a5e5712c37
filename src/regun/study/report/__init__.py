"""The report of a study: one HTML file that explains itself, offline, on any screen and on paper."""

from regun.study.report.page import build_report

__all__ = ["build_report"]
