"""The entry of `pipo`: global options, the command table, failures and exit codes."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

import click

from pipo.errors import BadRequest, Internal, PipoError
from pipo_cli import failures
from pipo_cli.commands import CommandTable
from pipo_cli.settings import Settings, global_options

INTERRUPTED_EXIT = 130


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@global_options
def pipo() -> None:
    """Durable pipelines: every event written once, and verified where it went.

    Begin with `pipo run FILE`, then look with `pipo status`.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; the exit code: 0 done, 1 refused or failed, 2 usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    settings = Settings()
    _write_all()
    try:
        result: Any = pipo.main(words, prog_name="pipo", standalone_mode=False, obj=settings)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return failures.USAGE_EXIT
    except click.UsageError as error:
        return failures.show_usage(error, json=_json(settings, words))
    except PipoError as error:
        return failures.show(error, json=_json(settings, words))
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED_EXIT
    except UnicodeEncodeError as error:
        return failures.show(_not_text(error), json=_json(settings, words))
    except Exception as error:
        return _bug(error, json=_json(settings, words))
    return result if isinstance(result, int) else 0


def _write_all() -> None:
    """What a terminal's encoding lacks is written as an escape: the work behind it is done."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _json(settings: Settings, words: Sequence[str]) -> bool:
    """Whether to answer in JSON; the mistake may stand before the option was read."""
    return settings.json or "--json" in words


def _not_text(error: UnicodeEncodeError) -> BadRequest:
    """A word of the command line whose bytes are no text where a name is wanted."""
    return BadRequest(
        f"{error.object!a} is not UTF-8 text",
        hint="names, ids and states are; check the terminal's encoding (LC_ALL)",
    )


def _bug(error: Exception, *, json: bool) -> int:
    if not json:
        import traceback

        traceback.print_exception(error)
    return failures.show(
        Internal(
            f"{type(error).__name__}: {error}: this is a bug in Pipo",
            hint="please report it with the traceback that a run without --json prints",
        ),
        json=json,
    )


if __name__ == "__main__":
    sys.exit(main())
