"""Studies: many training, unlearning and audit runs that are compared in one table.

`parse` reads a file into a `spec.Study`; `plan` turns it into `tasks`, which make artifacts from a `context` (data,
splits, store). `scheduler` runs the tasks on an executor and emits `events`; `collect` reads the artifacts, and
`results` is the only aggregation over seeds and repeats. Start reading at `tasks`, then `plan`.
"""

from regun.experiments.study.api import open_study, run_study, study_results
from regun.experiments.study.collect import example_rows
from regun.experiments.study.context import Location, StudyContext
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.parse import builtin_names, parse_study, read_study
from regun.experiments.study.plan import StudyPlan, plan_study
from regun.experiments.study.results import Block, Cell, Floor, Ranking, Results, Row, Run
from regun.experiments.study.spec import Study

__all__ = [
    "Block",
    "Cell",
    "Floor",
    "Location",
    "OpenStudy",
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
