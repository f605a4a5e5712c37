"""`make test` ends, with a failure, when a process of the test run dies."""

import re
import subprocess
import sys
from pathlib import Path

MAKEFILE = Path(__file__).parents[1] / "Makefile"


def test_a_run_whose_processes_die_ends_with_a_failure(tmp_path) -> None:
    flags = re.search(r"-m pytest (.*)", MAKEFILE.read_text())
    assert flags is not None
    for number in range(3):
        (tmp_path / f"test_{number}.py").write_text("import os\ndef test_dies():\n    os.abort()\n")
    words = flags[1].replace("auto", "2").split()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "crashed while running" in done.stdout
