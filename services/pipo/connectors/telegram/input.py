"""Takes the messages that bots get, each a packet, by long polls of `getUpdates`.

Telegram keeps an update until a poll asks for a later one. The offset is part of the packet's
own transaction, so that a message is a packet exactly once, wherever a crash comes; what is
ignored moves the offset too, once for each answer. Only what came after the saved offset is
asked for, and what is not taken (a full buffer, a stop) stays with Telegram.

A bot has one reader in a home (`pipo.home.bots.claim`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pipo import durations
from pipo.clock import Clock
from pipo.connectors.contract import (
    Arrival,
    ConnectorError,
    Input,
    InputContext,
    InputSpec,
    RefusedArrival,
    RejectedArrival,
)
from pipo.connectors.http.sending import Sender
from pipo.connectors.telegram import answers, updates
from pipo.connectors.telegram.accounts import Account, Accounts
from pipo.connectors.telegram.answers import WRONG_TOKEN, Failed
from pipo.connectors.telegram.fetching import Files
from pipo.connectors.telegram.updates import Message, Position, Update
from pipo.errors import BadRequest, InvalidState, PipoError
from pipo.home import bots
from pipo.home.leases import Lease

T = TypeVar("T")

POLL_EVERY_S_MIN = 1.0
# Telegram holds a poll no longer.
POLL_S_MAX = 50
# Longer than a poll takes at Telegram; then nobody answers any more.
ANSWER_S = 15.0
PAUSE_S = 1.0
PAUSE_S_MAX = 60.0
# Telegram asks for seconds; nonsense must not stop the input for ever.
ASKED_PAUSE_S_MAX = 3600.0
BUFFER_PAUSE_S = 0.1
BUFFER_PAUSE_S_MAX = 2.0
# A start, or a moment's load, is no news.
WAITS_UNTOLD = 2
UPDATES_MAX = 100
# A hundred messages of 4096 characters, their formats and what they reply to, are far less.
ANSWER_BYTES = 32 * 1024 * 1024


def build(specs: Sequence[InputSpec], context: InputContext) -> Input:
    return TelegramInputs(specs, context)


class Stopping(Exception):
    """The input ends, and what it waited for was given up."""


async def until_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns, unless `stop` is set first: then it is cancelled.

    Raises: Stopping.
    """
    asked, waits = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((asked, waits), return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        raise Stopping
    finally:
        for task in (asked, waits):
            task.cancel()
        await asyncio.gather(asked, waits, return_exceptions=True)


class TelegramInputs:
    """All telegram inputs of a pipeline; each reads a bot of its own."""

    def __init__(
        self, specs: Sequence[InputSpec], context: InputContext, *, answer_s: float = ANSWER_S
    ) -> None:
        self._specs = specs
        self._context = context
        self._answer_s = answer_s
        self._stop = asyncio.Event()
        self._leases: list[Lease] = []
        self._readers: list[_Reader] = []
        self._files: Files | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def bots(self) -> Sequence[str]:
        """The bots' own numbers (contract.BotReader)."""
        return [reader.account.id for reader in self._readers]

    async def open(self) -> None:
        """Claims the bots and starts to poll.

        Raises: PipoError, for a bot that is not set up or has no usable token; Conflict,
            for one that another pipeline reads.
        """
        if self._running is not None:
            return
        assert self._context.home is not None, "a pipeline process runs in a home"
        self._files = Files(self._context, self._context.home.pipeline(self._context.pipeline))
        try:
            await self._files.open()
            for spec in self._specs:
                await self._add(spec, self._files)
        except BaseException:
            await self._let_go()
            raise
        self._running = asyncio.create_task(self._run_all(), name="telegram inputs")

    async def close(self) -> None:
        """Ends the polls at once; returns when no message is being taken any more."""
        self._stop.set()
        running, self._running = self._running, None
        if running is not None:
            await running
        await self._let_go()

    async def _add(self, spec: InputSpec, files: Files) -> None:
        accounts = Accounts(self._context, f"the input {spec.name!r}")
        await accounts.open()
        account = await asyncio.to_thread(_account, accounts, spec)
        twin = next((one for one in self._readers if one.account.id == account.id), None)
        if twin is not None:
            raise InvalidState(
                f"the inputs {twin.name!r} and {spec.name!r} read one Telegram bot",
                hint="a bot has one reader: keep one of them, or use another bot",
            )
        home, clock = self._context.home, self._context.clock
        assert home is not None
        self._leases.append(await asyncio.to_thread(bots.claim, home, account.id, clock=clock))
        reader = _Reader(spec, account, self._context, files, self._stop, self._answer_s)
        self._readers.append(reader)
        await reader.open()

    async def _run_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reader in self._readers:
                group.create_task(reader.run(), name=f"telegram {reader.name}")

    async def _let_go(self) -> None:
        for reader in self._readers:
            await reader.close()
        if self._files is not None:
            await self._files.close()
        while self._leases:
            self._leases.pop().release()


def _account(accounts: Accounts, spec: InputSpec) -> Account:
    """Raises: PipoError, for a bot that cannot be read."""
    try:
        account = accounts.of(spec.settings)
    except ConnectorError as error:
        raise BadRequest(f"input {spec.name!r}: {error.message}", hint=error.hint) from error
    if not account.id:
        raise BadRequest(
            f"input {spec.name!r}: the bot's token is none",
            hint="a token starts with the bot's number, as in 123456:ABC-DEF",
        )
    return account


def _poll_s(spec: InputSpec, account: Account) -> int:
    """How long one poll waits, in whole seconds as Telegram takes them. Raises: BadRequest."""
    given = spec.settings.get("poll_every")
    if given is None:
        every_s = bots.POLL_EVERY_S if account.bot is None else account.bot.poll_every_s
    else:
        every_s = durations.parse(given) / 1000
    if every_s < POLL_EVERY_S_MIN:
        raise BadRequest(
            f"input {spec.name!r}: `poll_every: {given}` is too short", hint="1s at least"
        )
    return min(int(every_s), POLL_S_MAX)


def _allowed(spec: InputSpec, account: Account) -> frozenset[int]:
    """The chats and users that are heard; nobody where no list is given."""
    own = None if account.bot is None else account.bot.allow
    given: Sequence[int] | None = spec.settings.get("allow", own)
    return frozenset(given or ())


@dataclass(slots=True)
class _Backoff:
    """How long to wait after each of a row of failures."""

    clock: Clock
    pause_s: float
    pause_s_max: float
    failures: int = 0

    def next_s(self, asked_s: float = 0.0) -> float:
        wait_s: float = min(self.pause_s * 2.0 ** min(self.failures, 20), self.pause_s_max)
        self.failures += 1
        return max(wait_s / 2 + self.clock.jitter(wait_s / 2), min(asked_s, ASKED_PAUSE_S_MAX))


class _Reader:
    """One input: it reads one bot."""

    def __init__(
        self,
        spec: InputSpec,
        account: Account,
        context: InputContext,
        files: Files,
        stop: asyncio.Event,
        answer_s: float,
    ) -> None:
        self.name = spec.name
        self.account = account
        self._context = context
        self._clock = context.clock
        self._files = files
        self._stop = stop
        self._poll_s = _poll_s(spec, account)
        self._allowed = _allowed(spec, account)
        self._downloads = bool(spec.settings.get("download", True))
        self._sender = Sender(timeout_s=self._poll_s + answer_s)
        self._position = Position()
        self._durable = self._position
        self._backoff = _Backoff(context.clock, PAUSE_S, PAUSE_S_MAX)
        self._failing = ""

    async def open(self) -> None:
        state = await self._context.intake.state(self.name)
        self._durable = self._position = Position.of(state, self.account.id)
        await self._sender.open()
        if not self._allowed:
            self._log("warn", "every message is ignored: `allow` names nobody", "nobody_allowed")

    async def close(self) -> None:
        await self._sender.close()

    async def run(self) -> None:
        """Polls until it is stopped."""
        while not self._stop.is_set():
            try:
                await self._turn()
            except Stopping:
                return
            except Exception as error:
                # Ours, and no reason to hear no more: Telegram keeps what was not handled.
                self._log(
                    "error", "a turn failed: this is a bug", "turn_failed", reason=repr(error)
                )
                with suppress(Stopping):
                    await self._wait(self._backoff.next_s())

    async def _turn(self) -> None:
        """One poll and what it brings. Raises: Stopping."""
        began = self._clock.monotonic()
        found = await until_stopped(self._stop, self._polled())
        if isinstance(found, Failed):
            await self._rest(found)
        elif not await self._handled(found):
            # Telegram answers at once only when there is something: no server may make us spin.
            await self._wait(POLL_EVERY_S_MIN - (self._clock.monotonic() - began))

    # ── polls ────────────────────────────────────────────────────────────────

    async def _polled(self) -> list[Update] | Failed:
        # Others are not even sent; and what an earlier program asked for is over.
        fields: dict[str, Any] = {
            "timeout": self._poll_s,
            "limit": UPDATES_MAX,
            "allowed_updates": ["message"],
        }
        offset = self._position.offset(self._clock.now_ms())
        if offset is not None:
            fields["offset"] = offset
        try:
            request = self.account.call("getUpdates", fields)
            answer = await self._sender.ask(request, body_limit=ANSWER_BYTES)
        except ConnectorError as error:
            return Failed(0, error.message)
        if not answer.whole:
            return Failed(answer.status, "the answer is longer than any")
        read = answers.read(answer, mask=self._context.mask, now_ms=self._clock.now_ms())
        if isinstance(read, Failed):
            return read
        found = updates.read(read.value)
        return Failed(answer.status, "it brings no list of updates") if found is None else found

    async def _rest(self, failed: Failed) -> None:
        """Waits after a poll that failed; each new reason is told once."""
        why = (
            f"getUpdates was answered {failed.status}: {failed.why}"
            if failed.status
            else failed.why
        )
        if why != self._failing:
            self._failing = why
            level = "error" if failed.status in {*WRONG_TOKEN, 409} else "warn"
            self._log(level, "no updates", "poll_failed", reason=why, hint=_hint(failed))
        await self._wait(self._backoff.next_s(failed.pause_s or 0.0))

    def _answers_again(self) -> None:
        self._backoff.failures = 0
        if self._failing:
            self._failing = ""
            self._log("info", "updates come again", "poll_recovered")

    async def _wait(self, seconds: float) -> None:
        await until_stopped(self._stop, asyncio.sleep(seconds))

    # ── updates ──────────────────────────────────────────────────────────────

    async def _handled(self, found: Sequence[Update]) -> bool:
        """Whether any of these updates was new; all are handled, but for a stop."""
        self._answers_again()
        before = self._position
        try:
            for update in found:
                if self._stop.is_set():
                    raise Stopping
                if self._position.is_new(update.id, self._clock.now_ms()):
                    await self._handle(update)
        finally:
            await self._remember()
        return self._position != before

    async def _handle(self, update: Update) -> None:
        position = self._position.past(update.id, self._clock.now_ms())
        message = update.message
        if message is not None and self._hears(message):
            await self._take(message, position)
            self._durable = position
        elif message is not None:
            self._log(
                "info",
                "message ignored",
                "message_ignored",
                username=message.username,
                user=message.sender,
                chat=message.chat,
            )
        self._position = position

    def _hears(self, message: Message) -> bool:
        return message.chat in self._allowed or message.sender in self._allowed

    async def _take(self, message: Message, position: Position) -> None:
        """Makes a message a packet, however long the buffer is full. Raises: Stopping."""
        data = dict(message.data)
        if message.file is not None:
            path = None
            if self._downloads:
                path = await until_stopped(
                    self._stop, self._files.fetch(self.account, message.file)
                )
            data["file"] = message.file.data(path)
        state = position.state(self.account.id)
        arrival = Arrival(self.name, data, "telegram", str(message.chat), state)
        backoff = _Backoff(self._clock, BUFFER_PAUSE_S, BUFFER_PAUSE_S_MAX)
        while (why := await self._refused(arrival)) is not None:
            if backoff.failures == WAITS_UNTOLD:
                self._log("warn", "messages wait", "messages_wait", reason=why)
            await self._wait(backoff.next_s())

    async def _refused(self, arrival: Arrival) -> str | None:
        """Why a message is not taken for now; None once it is on disk."""
        try:
            (taken,) = await self._context.intake.take([arrival])
        except PipoError as error:
            return error.message
        if isinstance(taken, RejectedArrival):
            self._log("warn", "message rejected", "message_rejected", reason=taken.message)
        return taken.message if isinstance(taken, RefusedArrival) else None

    async def _remember(self) -> None:
        """The offset past what became no packet is on disk, or is tried again with the next answer."""
        if self._position == self._durable:
            return
        position = self._position
        try:
            await self._context.intake.remember(self.name, position.state(self.account.id))
        except PipoError as error:
            self._log("warn", "offset not kept", "offset_not_kept", reason=error.message)
        else:
            self._durable = position

    def _log(self, level: str, message: str, action: str, **keys: Any) -> None:
        self._context.log(
            level, message, action=action, input=self.name, bot=self.account.id, **keys
        )


def _hint(failed: Failed) -> str:
    if failed.status == 409:
        return "another program reads this bot, or a webhook is set for it; end that"
    return failed.hint
