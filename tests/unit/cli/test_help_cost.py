"""What `pipo --help` loads: nothing that only settings and pipelines need."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from pipo_cli.main import main
main(["--help"])
print([name for name in ("yaml", "zoneinfo", "pipo.home.config") if name in sys.modules])
"""


def test_help_reads_no_settings() -> None:
    seen = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert seen.stdout.splitlines()[-1] == "[]"
