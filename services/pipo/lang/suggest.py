"""The hints of findings: did you mean, and what there is."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

_SHOWN = 20
_COMPARED = 100


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean x?` for the closest known word, or nothing when none is close."""
    by_lower = {name.lower(): name for name in islice(known, _COMPARED)}
    close = get_close_matches(word[:60].lower(), by_lower, 1)
    return f"did you mean `{by_lower[close[0]]}`?" if close else ""


def one_of(word: str, known: Iterable[str], label: str = "there are") -> str:
    """The closest known word and all of them: `did you mean x? there are: x, y`."""
    names = list(known)
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    listed = f"{label}: {shown or 'none'}"
    close = did_you_mean(word, names)
    return f"{close} {listed}" if close else listed
