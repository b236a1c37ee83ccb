"""What the exec tap and the exec transform share: one program for each run of a step.

At least once: a step that was running at a crash runs its program again (R060), once the one
before has been ended.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipo.connectors.contract import Context, StepCall, WriteFailed
from pipo.connectors.destination import cannot_write, make_folder
from pipo.connectors.exec import outcome
from pipo.connectors.exec.capture import Capture
from pipo.connectors.exec.keeping import NotStarted, Order, keeper_at
from pipo.connectors.exec.outcome import Ended
from pipo.connectors.exec.program import Program, program
from pipo.errors import InvalidState
from pipo.lang.templates import compile_template, is_template

_HINTS = {
    errno.ENOEXEC: "a script begins with a line such as #!/bin/sh",
    errno.E2BIG: "give it what is large by `stdin`",
}


class Runs:
    """The programs of a pipeline's steps; `open` before use."""

    def __init__(self, context: Context) -> None:
        self._context = context
        home = context.home
        lease = None if home is None else home.pipeline(context.pipeline).programs
        self._keeper = keeper_at(lease, context.clock)
        self._path = os.environ.get("PATH", os.defpath)

    async def open(self) -> None:
        """Raises: Conflict, when programs of an earlier run do not end."""
        await self._keeper.open()

    async def close(self) -> None:
        await self._keeper.close()

    @property
    def keeper_pid(self) -> int:
        """Of the process that starts the programs."""
        return self._keeper.pid

    def require(self, settings: Mapping[str, Any]) -> None:
        """Passes when a command that is written out, in settings not rendered, is there.

        Raises: InvalidState.
        """
        shown = {key: settings.get(key) for key in ("command", "args")}
        if "secrets" in compile_template(shown).names:
            self._context.log(
                "warn",
                "a secret in `command` or `args` is seen by everyone on this machine",
                action="secret_in_command_line",
                command=settings["command"],
                hint="give it by `env` or `stdin`",
            )
        command, path = settings["command"], (settings.get("env") or {}).get("PATH", self._path)
        if is_template(command) or is_template(path):
            return
        if "/" in command:
            command = os.path.normpath(os.path.join(self._context.folder, command))
        try:
            _found(command, path)
        except WriteFailed as error:
            raise InvalidState(error.message, hint=error.hint) from error

    async def run(self, call: StepCall, *, stdout_bytes: int) -> tuple[Program, Ended]:
        """A run that counts as a success, with the end of what it printed.

        Raises: Refused, for what no program can be given; WriteFailed.
        Cancelled: the program is being ended.
        """
        made = program(call.settings)
        order = await asyncio.to_thread(self._prepared, made)
        async with self._keeper.slot():
            ended = await self._run(made, order, stdout_bytes)
        failed = outcome.failure(made, ended, self._context.mask)
        if failed is None and made.files:
            failed = outcome.missing(made, await asyncio.to_thread(_missing, made))
        if failed is not None:
            raise failed
        return made, ended

    def _prepared(self, made: Program) -> Order:
        """The order for a run, once its folders are there."""
        if not Path(made.cwd).is_dir():
            raise WriteFailed(f"`cwd` {made.cwd} is no folder", hint="make it, or name another")
        path = _found(made.command, made.env.get("PATH", self._path))
        for file in made.files:
            try:
                make_folder(file)
            except OSError as error:
                raise cannot_write(file, error) from error
        # By its own name, as a shell would: some programs are told by it what to be.
        name = path if "/" in made.command else made.command
        return Order(path, (name, *made.args), made.cwd, made.env, made.timeout_s)

    async def _run(self, made: Program, order: Order, stdout_bytes: int) -> Ended:
        began = self._context.clock.monotonic()
        out, err = Capture(stdout_bytes), Capture(outcome.INFO_BYTES + outcome.MARGIN_BYTES)
        stdin = _memory_file(made.stdin)
        try:
            exit = await self._keeper.run(order, (stdin, out.write_fd, err.write_fd))
            printed, warned = out.finish(), err.finish()
        finally:
            os.close(stdin)
            out.close()
            err.close()
        if isinstance(exit, NotStarted):
            raise _not_started(made, order, exit)
        ms = int((self._context.clock.monotonic() - began) * 1000.0)
        return Ended(exit.code, exit.signal, exit.timed_out, ms, printed, warned)


def _found(command: str, path: str) -> str:
    """The absolute path of a program. Raises: WriteFailed, when it is not there to be run."""
    if "/" not in command:
        if (found := shutil.which(command, path=path)) is None:
            raise WriteFailed(
                f"the program {command!r} is not installed or not on PATH",
                hint="install it where the runner runs, or name it by its path",
            )
        return os.path.abspath(found)
    if not os.path.isfile(command):
        raise WriteFailed(f"there is no program {command}: it is not installed there")
    if not os.access(command, os.X_OK):
        raise WriteFailed(
            f"{command} is no program: it may not be executed", hint=f"chmod +x {command}"
        )
    return command


def _missing(made: Program) -> list[str]:
    return [file for file in made.files if not os.path.exists(file)]


def _not_started(made: Program, order: Order, why: NotStarted) -> WriteFailed:
    what = f"`cwd` {made.cwd}" if why.at == "cwd" else order.path
    hint = _HINTS.get(why.errno, "")
    return WriteFailed(f"{made.shown} did not start: {what}: {os.strerror(why.errno)}", hint=hint)


def _memory_file(content: bytes) -> int:
    """A file that the program reads from its start; it holds up nobody, however large."""
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
