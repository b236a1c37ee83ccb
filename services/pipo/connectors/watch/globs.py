"""Which files a `path` means. Pure: names in, yes or no out.

A path has a literal part, the root, and a pattern below it. `*` and `?` stay within one name,
`[a-z]` and `[!a-z]` are one character, `{a,b}` is either, and `**` is any number of folders.
Hidden files are files like any other. A path without any of these is a file, or a folder of
which every file below is meant.

Names are relative to the root; a root that is itself the file has the name "".
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

_MAGIC = re.compile(r"[*?\[{]")
_DEEP = "**"
_ALTERNATIVES_MAX = 256


class BadGlob(ValueError):
    """A pattern that means nothing; the message says why."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A path as an input watches it; a `plain` one may itself be a file."""

    text: str
    root: str
    plain: bool
    _ways: tuple[tuple[re.Pattern[str] | None, ...], ...]

    def takes(self, name: str) -> bool:
        """Whether a file of that name is meant."""
        if not name:
            return self.plain
        return any(len(way) in _reached(way, name) for way in self._ways)

    def enters(self, name: str) -> bool:
        """Whether files below the folder of that name can be meant."""
        return any(any(at < len(way) for at in _reached(way, name)) for way in self._ways)

    def path(self, name: str) -> str:
        """The absolute path of a name."""
        return os.path.join(self.root, name) if name else self.root

    def shown(self, name: str) -> str:
        """The name as a packet holds it."""
        return name or os.path.basename(self.root)


def compile_glob(path: str, folder: str) -> Glob:
    """The glob of an absolute path; what it shares with the pipeline's folder is taken literally.

    Raises: BadGlob.
    """
    literal = os.path.commonpath([path, folder])
    rest = os.path.relpath(path, literal).split("/") if path != literal else []
    while rest and not _MAGIC.search(rest[0]):
        literal = os.path.join(literal, rest.pop(0))
    if not rest:
        return Glob(path, literal, True, ((None,),))
    ways = []
    for way in _alternatives("/".join(rest)):
        ways.append(tuple(_segment(part) for part in way.split("/") if part))
        if len(ways) > _ALTERNATIVES_MAX:
            raise BadGlob(f"'{path}' has more than {_ALTERNATIVES_MAX} alternatives")
    return Glob(path, literal, False, tuple(ways))


def _segment(part: str) -> re.Pattern[str] | None:
    """What one name must look like; None for any number of folders."""
    return None if part == _DEEP else re.compile(fnmatch.translate(part))


def _alternatives(text: str) -> Iterator[str]:
    """The pattern once for each choice of its braces, the outermost first."""
    found = _braces(text)
    if found is None:
        yield text
        return
    before, choices, after = found
    for choice in choices:
        yield from _alternatives(f"{before}{choice}{after}")


def _braces(text: str) -> tuple[str, list[str], str] | None:
    """What stands before, in and behind the first pair of braces with a comma; None without one."""
    for start in (at for at, letter in enumerate(text) if letter == "{"):
        depth, commas = 0, []
        for at in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if text[at] == "," and depth == 1:
                commas.append(at)
            if depth == 0:
                break
        if depth == 0 and commas:
            edges = [start, *commas, at]
            choices = [text[a + 1 : b] for a, b in pairwise(edges)]
            return text[:start], choices, text[at + 1 :]
    return None


def _reached(way: Sequence[re.Pattern[str] | None], name: str) -> set[int]:
    """Where in the pattern one can stand once it has read all of a name."""
    standing = _skipping(way, {0})
    for part in name.split("/"):
        moved = set()
        for at in standing:
            if at < len(way):
                wanted = way[at]
                if wanted is None:
                    moved.add(at)
                elif wanted.match(part):
                    moved.add(at + 1)
        standing = _skipping(way, moved)
        if not standing:
            break
    return standing


def _skipping(way: Sequence[re.Pattern[str] | None], standing: set[int]) -> set[int]:
    """The same, also past any number of folders that are none."""
    for at in sorted(standing):
        while at < len(way) and way[at] is None:
            at += 1
            standing.add(at)
    return standing
