"""The log file: it turns over by size and takes standard output along."""

import subprocess
import sys
from pathlib import Path

CHILD = """
import os, sys
from pathlib import Path
from pipo.telemetry.files import RotatingFile
handler = RotatingFile.with_stdio(Path(sys.argv[1]), size_limit=1000)
for number in range(6):
    print(f"{number:0500d}")
os.write(2, b"from below\\n")
print("odd \\udc80", file=sys.stderr)
"""


def test_it_turns_over_and_standard_output_follows(tmp_path: Path) -> None:
    file = tmp_path / "p.log"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(file)], capture_output=True, check=True, timeout=60
    )
    assert done.stdout == b""
    assert done.stderr == b""
    assert file.read_bytes() == b"from below\nodd \\udc80\n"
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["p.log", "p.log.1", "p.log.2", "p.log.3"]
    newest = (tmp_path / "p.log.1").read_text().split()
    assert [int(line) for line in newest] == [4, 5]
