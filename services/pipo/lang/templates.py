"""Templates: JSON-like values whose strings may hold `${expression}`.

A string that is one hole keeps the type of its value; any other text around it
makes a string. `$${` stands for `${`. Constant parts are folded when compiled.

Source: facts §5.4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from pipo.clock import Clock, SystemClock
from pipo.lang.closures import Closure, Scope
from pipo.lang.expressions import Expression, compile_expression
from pipo.lang.faults import LanguageError, beyond
from pipo.lang.missing import MISSING
from pipo.lang.printing import jsonable, mixed_text
from pipo.lang.tree import Access, Name
from pipo.lang.utf16 import concat

_SYSTEM = SystemClock()
_OPENING = re.compile(r"\$\$\{|\$\{")
_INSIDE = re.compile(r"[^'\"{}\\]+")


@dataclass(frozen=True, slots=True)
class Hole:
    """One `${…}`; `start` is where its expression begins in the string."""

    source: str
    start: int


def is_template(text: str) -> bool:
    """Whether a text has a hole, or tries to have one."""
    return any(found[0] == "${" for found in _OPENING.finditer(text))


def is_lone(text: str) -> bool:
    """Whether a text is one hole and nothing else, so that the value keeps its type.

    Raises: LanguageError, as `split`.
    """
    parts = split(text)
    return len(parts) == 1 and isinstance(parts[0], Hole)


def split(text: str) -> list[str | Hole]:
    """A string's literal parts (with `$${` undone) and holes, in order; no empty parts.

    Raises: LanguageError (syntax), for a `${` without its `}` or with nothing inside.
    """
    if "${" not in text:
        return [text] if text else []
    parts: list[str | Hole] = []
    literal = ""
    at = 0
    while found := _OPENING.search(text, at):
        literal += text[at : found.start()]
        at = found.end()
        if found[0] == "$${":
            literal += "${"
            continue
        end = _hole_end(text, at)
        if not text[at:end].strip():
            raise LanguageError("syntax", "there is nothing in `${}`", found.start())
        if literal:
            parts.append(literal)
        parts.append(Hole(text[at:end], at))
        literal, at = "", end + 1
    literal += text[at:]
    return [*parts, literal] if literal else parts


def _hole_end(text: str, start: int) -> int:
    """Where the `}` of the hole stands whose expression begins at `start`."""
    depth = 0
    at = start
    while at < len(text):
        char = text[at]
        if char in "'\"":
            at = _quote_end(text, at)
        elif char == "{":
            depth += 1
        elif char == "}":
            if depth == 0:
                return at
            depth -= 1
        run = _INSIDE.match(text, at + 1)
        at = run.end() if run else at + 1
    raise LanguageError(
        "syntax", "`${` is not closed", start - 2, hint="a plain `${` is written `$${`"
    )


def _quote_end(text: str, start: int) -> int:
    """Where the closing quote stands; the end of the text when there is none."""
    quote = text[start]
    at = start + 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" else 1
    return at


class Template:
    """A compiled template; safe to share.

    `constant` says that nothing is dynamic: `render` then gives one and the same
    object, which the caller must not change. `static_prefix` is, of a string, what
    stands before its first hole, and empty for anything else.
    """

    def __init__(self, source: Any, clock: Clock) -> None:
        self.source = source
        self.static_prefix = ""
        self._clock = clock
        self._expressions: list[Expression] = []
        self._lone: Expression | None = None
        self._render = self._compiled(source)
        self.constant = not self._expressions
        self._value = self._render({}) if self.constant else None
        if isinstance(source, str):
            self._describe(split(source))

    @property
    def names(self) -> frozenset[str]:
        """The variables that it reads."""
        return frozenset(name for expression in self._expressions for name in expression.names)

    def render(self, scope: Scope) -> Any:
        """Its JSON value: missing keys are left out, missing items are null.

        A template that is one missing value gives MISSING.
        Raises: LanguageError, kind `unknown_name` or `runtime`.
        """
        return self._value if self.constant else _within_range(self._render, scope)

    def evaluate(self, scope: Scope) -> Any:
        """As `render`, but the value of a lone hole is left as it is: NaN, −0."""
        return self._lone.evaluate(scope) if self._lone else self.render(scope)

    def text(self, scope: Scope) -> str:
        """Its value as text, as for a message; a missing value is empty."""
        return str(_within_range(lambda scope: mixed_text(self.evaluate(scope)), scope))

    def _describe(self, parts: list[str | Hole]) -> None:
        if parts and isinstance(parts[0], str):
            self.static_prefix = parts[0]
        elif len(parts) == 1:
            self._lone = self._expressions[0]

    # ── compiling ──

    def _compiled(self, value: Any) -> Closure:
        if isinstance(value, str):
            return self._string(value)
        before = len(self._expressions)
        if isinstance(value, dict):
            made = _object([(key, self._compiled(item)) for key, item in value.items()])
        elif isinstance(value, list):
            made = _list([self._compiled(item) for item in value])
        else:
            return _always(jsonable(value))
        return made if len(self._expressions) > before else _always(made({}))

    def _string(self, text: str) -> Closure:
        parts = split(text)
        made = [self._hole(part) if isinstance(part, Hole) else part for part in parts]
        if len(made) == 1 and isinstance(made[0], Expression):
            return _lone(made[0])
        if any(isinstance(part, Expression) for part in made):
            return _mixed(made)
        return _always(made[0] if made else "")

    def _hole(self, hole: Hole) -> Expression:
        expression = compile_expression(hole.source, clock=self._clock, offset=hole.start)
        self._expressions.append(expression)
        return expression


def compile_template(value: Any, *, clock: Clock = _SYSTEM) -> Template:
    """The template that a JSON-like value is; strings anywhere inside may hold holes.

    Raises: LanguageError, kind `syntax` or `limit`; its position counts in the string at fault.
    """
    return Template(value, clock)


def _within_range(render: Closure, scope: Scope) -> Any:
    """What `render` makes; a value that Python cannot print is the language's own error."""
    try:
        return render(scope)
    except (RecursionError, ValueError, OverflowError) as error:
        raise beyond(error) from error


def _always(value: Any) -> Closure:
    return lambda scope: value


def _lone(expression: Expression) -> Closure:
    root = expression.tree
    while isinstance(root, Access):
        root = root.object
    if isinstance(root, Name):
        return partial(_read, expression)
    return lambda scope: jsonable(expression.evaluate(scope))


def _read(expression: Expression, scope: Scope) -> Any:
    """What is read from data: JSON already, and perhaps large; only −0 is still to be 0."""
    value = expression.evaluate(scope)
    return jsonable(value) if value.__class__ is float else value


def _mixed(parts: list[str | Expression]) -> Closure:
    def evaluate(scope: Scope) -> str:
        return concat(
            part if isinstance(part, str) else mixed_text(part.evaluate(scope)) for part in parts
        )

    return evaluate


def _object(entries: list[tuple[str, Closure]]) -> Closure:
    def evaluate(scope: Scope) -> dict[str, Any]:
        made = {}
        for key, render in entries:
            value = render(scope)
            if value is not MISSING:
                made[key] = value
        return made

    return evaluate


def _list(items: list[Closure]) -> Closure:
    def evaluate(scope: Scope) -> list[Any]:
        made = [render(scope) for render in items]
        return [None if value is MISSING else value for value in made]

    return evaluate
