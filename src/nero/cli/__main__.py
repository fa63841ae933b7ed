"""``python -m nero.cli`` is the ``nero`` command."""

import sys

from nero.cli import main

sys.exit(main())
