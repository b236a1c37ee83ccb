"""What differs between the texts of two versions, as people read it (edge 354). Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipo.lang.texts import Texts

CONTEXT_LINES = 3
_NO_LINE_END = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True)
class TextDiff:
    """A unified diff, and how many lines came and went; the counts do not see a lost line end."""

    diff: str
    identical: bool
    added: int
    removed: int


def diff(
    name: str, old: tuple[int, Texts], new: tuple[int, Texts], mask: Callable[[str], str] = str
) -> TextDiff:
    """The diff of two versions of the pipeline `name`, each with its number.

    The pipeline's own text comes first, then every file that differs, by path. `mask` is
    applied to whole texts before they are compared by lines, so that no secret is cut in two.
    """
    lines: list[str] = []
    body: list[str] = []
    for path, before, after in _pairs(old[1], new[1]):
        title = name if path is None else f"{name} {path}"
        made = list(_unified(mask(before), mask(after), f"{title} v{old[0]}", f"{title} v{new[0]}"))
        lines += made
        # Behind the two headers; a line that is taken away may look like one.
        body += made[2:]
    return TextDiff(
        diff="".join(f"{line}\n" for line in lines),
        identical=old[1] == new[1],
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
    )


def _pairs(old: Texts, new: Texts) -> Iterator[tuple[str | None, str, str]]:
    """Each text that differs; the pipeline's own has no path, what is not there is empty."""
    if old.source != new.source:
        yield None, old.source, new.source
    for path in sorted({*old.files, *new.files}):
        before, after = old.files.get(path, ""), new.files.get(path, "")
        if before != after or (path in old.files) is not (path in new.files):
            yield path, before, after


def _unified(before: str, after: str, old: str, new: str) -> Iterator[str]:
    """The lines of a unified diff, without their ends."""
    made = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        old,
        new,
        n=CONTEXT_LINES,
        lineterm="\n",
    )
    for line in made:
        yield line.rstrip("\r\n")
        if not line.endswith(("\n", "\r")):
            yield _NO_LINE_END
