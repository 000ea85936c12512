"""`python -m amdcheck` is `amdcheck`."""

import sys

from amdcheck.cli import main

sys.exit(main())
