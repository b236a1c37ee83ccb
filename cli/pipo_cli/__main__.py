"""`python -m pipo_cli` is `pipo`."""

import sys

from pipo_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
