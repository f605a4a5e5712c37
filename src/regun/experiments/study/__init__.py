"""Many runs as one: studies, their plan, the engines that carry it out, and THE aggregation of what comes out."""

from regun.experiments.study.api import open_study, run_study, study_results
from regun.experiments.study.collect import example_rows
from regun.experiments.study.context import Location, StudyContext
from regun.experiments.study.parse import builtin_names, parse_study, read_study
from regun.experiments.study.planning import StudyPlan, plan_study
from regun.experiments.study.results import Block, Cell, Floor, Ranking, Results, Row, Run
from regun.experiments.study.spec import Study

__all__ = [
    "Block",
    "Cell",
    "Floor",
    "Location",
    "Ranking",
    "Results",
    "Row",
    "Run",
    "Study",
    "StudyContext",
    "StudyPlan",
    "builtin_names",
    "example_rows",
    "open_study",
    "parse_study",
    "plan_study",
    "read_study",
    "run_study",
    "study_results",
]
