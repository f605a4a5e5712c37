"""Many runs as one: studies, their plan, the engines that carry it out, and THE aggregation of what comes out."""

from regun.study.api import open_study, run_study, study_results
from regun.study.collect import example_rows
from regun.study.plan import StudyPlan, plan_study
from regun.study.reading import builtin_names, parse_study, read_study
from regun.study.results import Block, Cell, Floor, Ranking, Results, Row, Run
from regun.study.spec import Study
from regun.study.workshop import Workplace, Workshop

__all__ = [
    "Block",
    "Cell",
    "Floor",
    "Ranking",
    "Results",
    "Row",
    "Run",
    "Study",
    "StudyPlan",
    "Workplace",
    "Workshop",
    "builtin_names",
    "example_rows",
    "open_study",
    "parse_study",
    "plan_study",
    "read_study",
    "run_study",
    "study_results",
]
