"""`python -m fle` is the command `fle`."""

import sys

from fle.cli import main

sys.exit(main())
