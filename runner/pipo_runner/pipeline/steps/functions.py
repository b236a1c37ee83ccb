"""The author's functions as steps of a pipeline: which code runs, and what its failures mean.

Each version runs the code that the journal keeps with it (decision 25); versions with the same
texts share what is loaded. A function reaches outside, as far as anyone knows: a commit stands
before and after each call.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any, Final, Literal

from pipo.connectors.contract import Context, OutsideStep, Refused, StepCall, WriteFailed
from pipo.functions.calling import Call, FunctionFailed, Limits
from pipo.functions.code import Code
from pipo.functions.launching import environment
from pipo.functions.pool import Pool
from pipo.functions.prints import Caller, PrintedLog
from pipo.payload import BadPayload, decode, encode
from pipo_runner.pipeline.definition.versions import Edition
from pipo_runner.pipeline.steps.steps import FUNCTION

# As much of an exception's text as a packet's error keeps; secrets are masked before the cut.
TEXT_CHARS: Final = 4_000


class Functions:
    """The functions of one pipeline process, and the processes that they run in."""

    def __init__(
        self, context: Context, *, concurrency: int, env_allow: tuple[str, ...] = ()
    ) -> None:
        self._mask = context.mask
        self._pool = Pool(
            size=concurrency,
            limits=Limits(result_bytes=context.packet_limit),
            environ=environment(os.environ, env_allow),
            log=PrintedLog(context.log, context.mask, context.clock),
            clock=context.clock,
        )

    def step(self, role: str, name: str, edition: Edition) -> OutsideStep:
        """The step `fn.<name>` of a version."""
        fn = edition.pipeline.fn
        assert fn is not None, name
        # Versions with the same texts in the same folder run the same code.
        same = hashlib.sha256(f"{edition.texts.hash} {edition.folder}".encode()).hexdigest()[:16]
        code = Code(same, fn, edition.texts.files, edition.folder)
        wants_result = role == "transform"
        return FunctionStep(self._pool, code, name.removeprefix(FUNCTION), wants_result, self._mask)

    async def close(self) -> None:
        """Ends what runs. Safe twice."""
        await self._pool.close()


class FunctionStep:
    """One function; a transform's result is read as strictly as what comes from outside."""

    pure: Literal[False] = False

    def __init__(
        self, pool: Pool, code: Code, function: str, wants_result: bool, mask: Callable[[str], str]
    ) -> None:
        self._pool = pool
        self._code = code
        self._function = function
        self._wants_result = wants_result
        self._mask = mask

    async def open(self) -> None:
        """Nothing: a process is started when a call needs it."""

    async def run(self, call: StepCall) -> Any:
        asked = Call(
            self._code,
            self._function,
            encode(call.data),
            call.meta,
            self._wants_result,
            Caller(call.node, call.unit),
        )
        try:
            result = await self._pool.run(asked)
            return decode(result) if self._wants_result else None
        except FunctionFailed as failed:
            text = self._mask(str(failed))
            if len(text) > TEXT_CHARS:
                text = f"{text[:TEXT_CHARS]}…"
            raise (Refused if failed.hopeless else WriteFailed)(text) from None
        except BadPayload as error:
            raise WriteFailed(
                f"fn.{self._function} returned what JSON cannot hold: {error}"
            ) from error

    async def close(self) -> None:
        """Nothing: the processes are shared."""
