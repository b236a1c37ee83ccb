"""The lexer: an expression's text as tokens, and its first refusals.

Operators that JavaScript has and expressions do not are read as one token, so
that the refusal can name them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from pipo.lang.faults import LanguageError
from pipo.lang.utf16 import concat
from pipo.lang.values import WHITE_SPACE, number

TokenKind = Literal["number", "text", "name", "operator", "end"]

OPERATORS = (
    *("===", "!==", "==", "!=", "<=", ">=", "<", ">", "&&", "||", "??", "?.", "?", ":"),
    *("+", "-", "*", "/", "%", "!", "(", ")", "[", "]", "{", "}", ",", "."),
)

# Read whole, longest first, and refused with the reason.
REFUSED = {
    **dict.fromkeys(("=", "+=", "-=", "*=", "/=", "%=", "&&=", "||=", "??="), "assignment"),
    **dict.fromkeys((">>>=", "<<=", ">>=", "**=", "&=", "|=", "^="), "assignment"),
    **dict.fromkeys(("++", "--"), "changing a value"),
    **dict.fromkeys(("|", "&", "^", "~", "<<", ">>", ">>>"), "bitwise arithmetic"),
    "=>": "a function",
    "**": "a power",
    "...": "spreading",
    ";": "a second statement",
    "`": "a template literal",
}
_HINTS = {
    "=": "to compare, write `==`",
    "&": "for both, write `&&`",
    "|": "for either, write `||`",
    "`": "write text in '…' or \"…\"",
    "--": "put a blank between the two signs",
    "++": "put a blank between the two signs",
}

_MARKS = re.compile("|".join(map(re.escape, sorted({*OPERATORS, *REFUSED}, key=len, reverse=True))))
_BLANKS = re.compile(f"[{re.escape(WHITE_SPACE)}]*")
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_JOINERS = "\u200c\u200d"
_PLAIN = {quote: re.compile(rf"[^{quote}\\]*") for quote in "'\""}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}
_CODE = re.compile(r"u(?:([0-9a-fA-F]{4})|\{0*([0-9a-fA-F]{1,6})\})")


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `value` is the number, the text, the name or the operator."""

    kind: TokenKind
    value: Any
    position: int

    def shown(self) -> str:
        """The token as a message names it."""
        if self.kind == "end":
            return "the end"
        return "a text" if self.kind == "text" else f"`{str(self.value)[:40]}`"


def tokens(text: str) -> list[Token]:
    """The tokens of a text, with an `end` token last.

    Raises: LanguageError (syntax), at the first character that starts none.
    """
    found: list[Token] = []
    at = _skip(text, 0)
    while at < len(text):
        token, at = _token(text, at)
        found.append(token)
        at = _skip(text, at)
    found.append(Token("end", "", len(text)))
    return found


def _skip(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _token(text: str, at: int) -> tuple[Token, int]:
    char = text[at]
    if char in "'\"":
        return _text(text, at)
    if found := _NUMBER.match(text, at):
        return _number(text, at, found[0])
    if end := _name_end(text, at):
        return Token("name", text[at:end], at), end
    mark = _MARKS.match(text, at)
    if mark is None:
        raise LanguageError("syntax", f"the character {char!r} starts nothing here", at)
    if mark[0] in REFUSED:
        refused = REFUSED[mark[0]]
        hint = _HINTS.get(mark[0], "")
        raise LanguageError("syntax", f"`{mark[0]}` ({refused}) is not allowed", at, hint=hint)
    return Token("operator", mark[0], at), mark.end()


def _name_end(text: str, at: int) -> int:
    """Where a name that starts at `at` ends; 0 when none does.

    Letters of every script, as in JavaScript: Python's own identifiers leave out
    the Thai `ำ` at the start and the joiners of Persian and Hindi inside.
    """
    end = at
    while end < len(text):
        if found := _NAME.match(text, end):
            end = found.end()
            continue
        char = text[end]
        if not (_continues(char) if end > at else _starts(char)):
            break
        end += 1
    return end if end > at else 0


def _starts(char: str) -> bool:
    """Whether a name may start with it; ASCII is read by `_NAME`."""
    return char >= "\x80" and (char.isalpha() or char.isidentifier())


def _continues(char: str) -> bool:
    if char.isascii():
        return char.isdigit()
    return char in _JOINERS or char.isalpha() or f"_{char}".isidentifier()


def _number(text: str, at: int, digits: str) -> tuple[Token, int]:
    end = at + len(digits)
    if end < len(text) and (text[end] == "." or _name_end(text, end)):
        wrong = text[at : _name_end(text, end) or end + 1]
        raise LanguageError("syntax", f"`{wrong[:40]}` is not a number", at)
    return Token("number", number(float(digits)), at), end


def _text(text: str, start: int) -> tuple[Token, int]:
    quote = text[start]
    plain = _PLAIN[quote]
    parts: list[str] = []
    at = start + 1
    while True:
        run = plain.match(text, at)
        assert run is not None
        parts.append(run[0])
        at = run.end()
        if at < len(text) and text[at] == quote:
            return Token("text", concat(parts), start), at + 1
        if at + 1 >= len(text) or text[at] != "\\":
            raise LanguageError(
                "syntax", f"the text that starts here has no closing {quote}", start
            )
        part, at = _escape(text, at + 1)
        parts.append(part)


def _escape(text: str, at: int) -> tuple[str, int]:
    """What an escape stands for, and where it ends; `at` is behind the backslash."""
    char = text[at]
    if char != "u":
        return _ESCAPES.get(char, char), at + 1
    found = _CODE.match(text, at)
    code = int(found[1] or found[2], 16) if found else 0x110000
    if found is None or code > 0x10FFFF:
        raise LanguageError("syntax", "`\\u` takes four hex digits, or up to six in braces", at - 1)
    return chr(code), found.end()
