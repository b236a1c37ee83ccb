"""Writes the generated sections of docs/language.md, between their markers.

    <!-- generated: diagnostics -->
    …
    <!-- end -->

Run it with `make docs`; `--check` only compares and exits 1 when the page is stale.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docs.tables import SECTIONS

PAGE = Path(__file__).resolve().parent / "language.md"
_SECTION = re.compile(r"(<!-- generated: ([a-z0-9 _-]+) -->\n).*?(?=^<!-- end -->$)", re.M | re.S)
_MARK = re.compile(r"^<!-- (generated: |end -->)", re.M)


def filled(text: str) -> str:
    """The page with every section made anew.

    Raises: SystemExit, for an unknown or missing section, and for a marker without its end.
    """
    names = [found[2] for found in _SECTION.finditer(text)]
    if sorted(names) != sorted(SECTIONS):
        odd = sorted(set(names) ^ set(SECTIONS)) or sorted({n for n in names if names.count(n) > 1})
        raise SystemExit(f"{PAGE.name}: each section stands once; look at {', '.join(odd)}")
    if len(_MARK.findall(text)) != 2 * len(names):
        raise SystemExit(f"{PAGE.name}: a marker has no end, or an end no marker")
    return _SECTION.sub(lambda found: found[1] + _framed(SECTIONS[found[2]]()), text)


def _framed(text: str) -> str:
    return f"\n{text}\n\n" if text else ""


def main() -> int:
    """0 when the page is current, or was written."""
    text = PAGE.read_text(encoding="utf-8")
    fresh = filled(text)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(fresh, encoding="utf-8")
        return 0
    if fresh != text:
        print(f"{PAGE.name} is stale; run `make docs`", file=sys.stderr)
    return int(fresh != text)


if __name__ == "__main__":
    raise SystemExit(main())
