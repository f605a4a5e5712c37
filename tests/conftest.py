"""Makes `tests/toys.py` importable from every test folder, and hypothesis repeatable where a run decides something."""

import os
import sys
from pathlib import Path

from hypothesis import settings

for folder in (".", "study", "show"):
    sys.path.insert(0, str(Path(__file__).parent / folder))

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
