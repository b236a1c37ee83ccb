"""`pipo eval`: one expression or template, evaluated here and now."""

from __future__ import annotations

import json as jsonlib
import os
import re
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click

from pipo import payload
from pipo.errors import BadRequest
from pipo.lang.expressions import compile_expression
from pipo.lang.faults import LanguageError
from pipo.lang.templates import compile_template, is_lone
from pipo_cli.failures import error_lines
from pipo_cli.render import values
from pipo_cli.settings import Settings, global_options, pass_settings

CONTEXT_BYTES_MAX: Final = 16 * 1024 * 1024
_MINUS: Final = re.compile("-[^-]")
_CONTEXT_HINT: Final = 'it holds one object, its keys the variables: {"data": {"age": 20}}'
_NO_CONTEXT_HINT: Final = "; give variables with --context FILE, or - for standard input"


class _Command(click.Command):
    """A command whose argument may begin with a minus sign: it has no short option but `-h`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        taking = {n for p in self.params if not getattr(p, "is_flag", True) for n in p.opts}
        words = args[: args.index("--")] if "--" in args else args
        for index, (before, word) in enumerate(pairwise(["", *words])):
            if _MINUS.match(word) and word != "-h" and before not in taking:
                return super().parse_args(ctx, [*args[:index], *args[index + 1 :], "--", word])
        return super().parse_args(ctx, args)


@click.command("eval", cls=_Command)
@click.argument("text", metavar="EXPR")
@click.option(
    "--context", metavar="FILE", help="A JSON object that holds the variables; - is standard input."
)
@click.option("--template", is_flag=True, help="EXPR is a template, such as 'to ${data.name}'.")
@global_options
@pass_settings
def evaluate(settings: Settings, text: str, context: str | None, template: bool) -> int:
    """Evaluate an expression against variables."""
    text = _as_typed(text)
    scope = {} if context is None else _scope(context)
    try:
        click.echo(_printed(text, scope, template=template, json=settings.json))
    except LanguageError as error:
        if settings.json:
            click.echo(jsonlib.dumps({"error": _fields(error)}, ensure_ascii=False))
        else:
            _explain(text, error, "" if context is not None else _NO_CONTEXT_HINT)
        return 1
    return 0


def _printed(text: str, scope: Mapping[str, Any], *, template: bool, json: bool) -> str:
    """The value as text or JSON; what a template mixes with other text is that text.

    Raises: LanguageError, for what the language refuses, a value too long to print included.
    """
    compiled = compile_template(text) if template else compile_expression(text)
    value = compiled.evaluate(scope)
    if template and not json and not is_lone(text):
        return values.printed_text(value)
    return values.as_json(value) if json else values.as_text(value)


def _as_typed(text: str) -> str:
    """The text that a word of the command line is, whatever the locale took its bytes for.

    Raises: BadRequest, when it is not UTF-8.
    """
    try:
        return os.fsencode(text).decode()
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"the expression is not UTF-8: byte {error.start}", hint="check the terminal's encoding"
        ) from error


def _scope(file: str) -> Mapping[str, Any]:
    """The variables in a file.

    Raises: BadRequest, when it cannot be read, is too large, or holds no JSON object.
    """
    raw, name = _read(file), "standard input" if file == "-" else file
    if len(raw) > CONTEXT_BYTES_MAX:
        raise BadRequest(
            f"{name} is larger than {CONTEXT_BYTES_MAX // 1024**2} MiB", hint="cut the data down"
        )
    try:
        scope = payload.decode(raw)
    except payload.BadPayload as error:
        raise BadRequest(f"{name} is not JSON: {error}", hint=_CONTEXT_HINT) from error
    if not isinstance(scope, dict):
        raise BadRequest(f"{name} holds no JSON object", hint=_CONTEXT_HINT)
    return scope


def _read(file: str) -> bytes:
    """No more of a file than it takes to see that it is too large: a device has no end."""
    try:
        if file == "-":
            return sys.stdin.buffer.read(CONTEXT_BYTES_MAX + 1)
        with Path(file).open("rb") as opened:
            return opened.read(CONTEXT_BYTES_MAX + 1)
    except OSError as error:
        raise BadRequest(f"cannot read {file}: {error.strerror}", hint=_CONTEXT_HINT) from error


def _fields(error: LanguageError) -> dict[str, Any]:
    return {"kind": error.kind, "message": error.message, "position": error.position}


def _explain(text: str, error: LanguageError, more: str) -> None:
    """The error on stderr, with the place in the text."""
    hint = error.hint + (more if error.kind == "unknown_name" else "")
    message = f"{error.message}, at character {error.position + 1}"
    first, *rest = error_lines(BadRequest(message, hint=hint))
    for line in (first, *values.excerpt(text, error.position), *rest):
        click.echo(line, err=True)
