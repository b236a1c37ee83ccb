"""The options that every command takes, before or after its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pipo import __version__
from pipo.home import Home, home_from

if TYPE_CHECKING:
    from pipo.home.config import Config

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Settings:
    """What the global options and the environment say."""

    home_option: str | None = None
    url: str | None = None
    token_file: str | None = None
    json: bool = False
    no_engine: bool = False

    @cached_property
    def home(self) -> Home:
        return home_from(self.home_option)

    @cached_property
    def config(self) -> Config:
        """Raises: BadRequest, with every mistake of config.yaml."""
        # Help and many commands read no settings, and need no YAML.
        from pipo.home import config

        return config.load(self.home)


def plain() -> bool:
    """Whether the person asked for text without colours and motion."""
    return bool(os.environ.get("PIPO_PLAIN") or os.environ.get("NO_COLOR"))


def settings_of(context: click.Context) -> Settings:
    """The one Settings of this invocation."""
    root = context.find_root()
    if root.obj is None:
        root.obj = Settings()
    found: Settings = root.obj
    return found


def global_options(command: F) -> F:
    """Adds the global options to a group or command; what stands last wins."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def pass_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls the function with the Settings first."""

    def with_settings(*words: Any, **keys: Any) -> Any:
        return function(settings_of(click.get_current_context()), *words, **keys)

    with_settings.__doc__ = function.__doc__
    with_settings.__name__ = function.__name__
    return with_settings


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value not in (None, False):
        setattr(settings_of(context), str(parameter.name), value)


def _version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"pipo {__version__}")
        context.exit()


def _option(*names: str, **keys: Any) -> Callable[[F], F]:
    return click.option(*names, expose_value=False, is_eager=True, callback=_keep, **keys)


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    _option("--home", "home_option", metavar="DIR", help="The Pipo home.  [PIPO_HOME, ~/.pipo]"),
    _option("--url", envvar="PIPO_URL", metavar="URL", help="A gateway's HTTP address."),
    _option("--token-file", metavar="FILE", help="A file that holds the gateway's token."),
    _option("--json", is_flag=True, help="Answer in JSON."),
    _option("--no-engine", is_flag=True, help="Ask the pipelines themselves, not the gateway."),
    click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_version,
        help="Print the version.",
    ),
)
