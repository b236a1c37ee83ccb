"""Barred imports."""

import subprocess
import sys


def test_logging_does_not_load_rich() -> None:
    code = "import sys, pipo.telemetry.logs; print('rich' in sys.modules); import rich"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n"
    assert done.returncode == 0
