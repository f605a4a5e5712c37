"""`python -m regun` is `regun`."""

import sys

from regun.cli import main

sys.exit(main())
