"""The language's own error: what an expression, a template or a value refuses."""

from __future__ import annotations

from typing import Literal

Kind = Literal["syntax", "limit", "unknown_name", "runtime"]


class LanguageError(Exception):
    """Why a text does not parse, or why its evaluation stopped.

    `syntax` and `limit` come from parsing, `unknown_name` and `runtime` from
    evaluation. `position` counts characters of the text from 0.
    """

    def __init__(self, kind: Kind, message: str, position: int = 0, *, hint: str = "") -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = message
        self.position = position
        self.hint = hint

    def moved(self, offset: int) -> LanguageError:
        """The same error in a text that holds this one from `offset` on."""
        return LanguageError(self.kind, self.message, self.position + offset, hint=self.hint)


def beyond(error: RecursionError | ValueError | OverflowError) -> LanguageError:
    """What it means when a value is too deep or too large to be worked on or printed."""
    if isinstance(error, RecursionError):
        return LanguageError("runtime", "the data nests too deep to compare or print")
    return LanguageError("runtime", f"a value is out of range: {error}")
