"""`python -P -m pipo.functions.helper CONTROL LIFE MEMORY LIMIT LEVEL`, see `main`."""

import sys

from pipo.functions.helper.main import main

main(*map(int, sys.argv[1:]))
