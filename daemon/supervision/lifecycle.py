"""One run of a child: its spec, its status with a diagnosis, its exception boundary, the pause after it.

The diagnosis comes from `remedies.toml` by the cause, and from `words.toml` by the last lines of stderr.
"""

from __future__ import annotations

import math
import re
import signal
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio
from loguru import logger

from daemon.causes import CURED_BY_LOGIN, HEALTHY, PASSING, Cause, Reason, Remedy
from daemon.config.labels import LISTING, server_of
from daemon.errors import RunError, leaf
from daemon.facts import ServerStatus
from daemon.kit.waiting import Watch
from daemon.kit.wording import MIB
from daemon.states import SERVING, TRANSITIONS, WAITING, ServerState
from daemon.supervision.backoff import Ending, Run

if TYPE_CHECKING:
    from daemon.config.tuning import Restart
    from daemon.history.event import Detail
    from daemon.supervision.starts import QueuedStart


LINES = 60
"""Most lines of stderr that are read, the last ones: Node.js prints some 15 after the line that matters."""

LINE = 400
"""Most characters of a line that are read, as matching takes longer with longer lines."""

SHOWN = 120
"""Most characters that a remedy quotes from outside."""

BY_SIGNAL = 128
"""A shell's exit status is this plus the number of the signal that ended its program."""

_OPEN = frozenset(
    {Cause.ENDED, Cause.EXITED, Cause.CONNECTION_LOST, Cause.HANDSHAKE_TIMEOUT, Cause.HANDSHAKE_REFUSED}
)
"""Causes that do not explain the program's own failure."""

_OPEN_SIGNALS = frozenset({"SIGABRT", "SIGTRAP"})
"""Signals that do not explain the failure either: a runtime that aborts has usually printed the reason."""


def needs_words(reason: Reason) -> bool:
    """Whether the last lines of stderr can tell more than the cause does."""
    is_open = reason.cause is Cause.KILLED and reason.data.get("signal") in _OPEN_SIGNALS
    return is_open or reason.cause in _OPEN


def by_words(name: str, reason: Reason, words: Sequence[str]) -> Reason:
    """The reason with a remedy found in a server's last lines, oldest first; unchanged if none matches.

    Sixty patterns over sixty lines take 10 ms, and 250 ms with hostile lines: run it in a thread.
    """
    lines = [line[:LINE] for line in words[: -LINES - 1 : -1]]
    for entry in table("words")["words"] if needs_words(reason) else ():
        pattern = re.compile(entry["pattern"])
        if match := next(filter(None, map(pattern.search, lines)), None):
            said = tuple((group or "").strip() for group in match.groups())
            return attrs.evolve(reason, remedy=_filled(entry, said, _named(name), by_words=True))
    return reason


def by_cause(name: str, reason: Reason) -> Reason:
    """The reason with its cause's remedy; unchanged if it already has one, or the cause has none."""
    if reason.cause is None or reason.remedy is not None:
        return reason
    cause, data = reason.cause, reason.data
    status = data.get("status", 0)
    if cause is Cause.EXITED and isinstance(status, int) and status - BY_SIGNAL in set(signal.Signals):
        cause, data = Cause.KILLED, {"signal": signal.Signals(status - BY_SIGNAL).name}
    for entry in table("remedies")[cause]:
        if all(data.get(key) in values for key, values in entry.get("when", {}).items()):
            try:
                return attrs.evolve(reason, remedy=_filled(entry, (), {**data, **_more(data), **_named(name)}))
            except KeyError:
                # This entry needs data that the cause does not carry this time.
                continue
    return reason


def mending(error: RunError) -> str:
    """The remedy for an error that keeps servers from starting, for use without a server; empty without one."""
    reason = error.reason
    for entry in table("remedies")[reason.cause] if reason.cause else ():
        if all(reason.data.get(key) in values for key, values in entry.get("when", {}).items()):
            return str(entry.get("mends", "")).format_map(reason.data)
    return ""


@cache
def table(name: str) -> dict[str, list[dict[str, Any]]]:
    """`remedies.toml` or `words.toml`; each is read once, in 4 ms."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def _named(name: str) -> dict[str, str]:
    whole = server_of(name)
    # An instance that only lists, or is an operator's (number 0), soon ends.
    is_passing = LISTING in name or name.startswith(f"{whole}#0")
    return {"server": whole if is_passing else name, "whole": whole}


def _more(data: Mapping[str, Any]) -> dict[str, str]:
    """Twice the limit that a server exceeded, as a value for its key."""
    if "limit" in data:
        return {"more": f"{-(-2 * data['limit'] // MIB)}MiB"}
    return {"more": f"{2 * data['seconds']:g}s"} if "seconds" in data else {}


def _filled(
    entry: Mapping[str, Any], said: Sequence[str], data: Mapping[str, Any], *, by_words: bool = False
) -> Remedy:
    shown = {key: value[:SHOWN] if isinstance(value, str) else value for key, value in data.items()}
    words = [text[:SHOWN] for text in said]
    shown["mends"] = entry.get("mends", "").format_map(shown)
    happened, helps = (_sentence(entry[key].format(*words, **shown)) for key in ("happened", "helps"))
    lacks = entry.get("lacks", "").format(*words, **shown)
    return Remedy(happened, helps, entry.get("waits", False), by_words, lacks)


def _sentence(text: str) -> str:
    whole = text.rstrip(" :")
    return whole if whole.endswith((".", "!", "?")) else f"{whole}."


NOT_RUNNING = frozenset({ServerState.STOPPED, ServerState.STOPPING, ServerState.DISABLED, ServerState.DORMANT})
"""States without a run to stop."""


class ChildStatus(Watch[ServerStatus]):
    """The status of a child, which changes only along `states.TRANSITIONS`, and counts of its runs."""

    def __init__(
        self,
        on_change: Callable[[ServerStatus], None],
        wall: Callable[[], float],
        redact: Callable[[str], str],
        name: str = "",
    ) -> None:
        super().__init__(ServerStatus(state=ServerState.STOPPED, since=wall()))
        self.runs = 0
        self.failures = 0
        self.untried = True
        """Whether the child has neither served nor failed since it was configured or became dormant."""
        self.last = HEALTHY
        self._on_change = on_change
        self._wall = wall
        self._redact = redact
        self._name = name
        self._ends = False

    def become(self, state: ServerState, reason: Reason = HEALTHY, *, retry_at: float | None = None) -> None:
        """Change the state; repeating the state only updates the reason and the retry time."""
        now = self.value
        if state is not ServerState.STOPPED and now.state is ServerState.STOPPING:
            return
        if self._ends and state not in {ServerState.STOPPING, ServerState.STOPPED}:
            return
        shown = self._diagnosed(reason.redacted(self._redact))
        if now.state is not state:
            if state not in TRANSITIONS[now.state]:
                raise ValueError(f"a server cannot go from {now.state} to {state}")
        elif (now.why, now.next_retry_at, now.incarnation) == (shown, retry_at, self.runs):
            return
        status = ServerStatus(
            state=state,
            why=shown,
            since=now.since if now.state is state else self._wall(),
            attempt=self.failures,
            next_retry_at=retry_at,
            incarnation=self.runs,
            restarts=max(0, self.runs - 1),
        )
        self.set(status)
        self._on_change(status)

    def _diagnosed(self, reason: Reason) -> Reason:
        """The reason with its remedy; a repeated end keeps the last remedy until stderr is read."""
        last = self.last
        if reason.remedy is None and (reason.cause, reason.data) == (last.cause, last.data):
            reason = attrs.evolve(reason, remedy=last.remedy)
        return by_cause(self._name, reason)

    def count_end(self, reason: Reason, *, asked: bool) -> Reason:
        """Count the end of a run, as a failure unless `asked`; return its reason without secrets."""
        self.last = reason.redacted(self._redact)
        self.failures = 0 if asked else self.failures + 1
        self.untried &= asked
        return self.last

    def back_off(self, state: ServerState, seconds: float | None) -> None:
        """Show that the next run follows in `seconds`; None hides the delay."""
        self.become(state, self.last, retry_at=None if seconds is None else self._wall() + seconds)

    def queue(self, before: int) -> None:
        """Show that the child waits in the queue of starts, after `before` others."""
        line = f"waits for its turn to start (servers before it: {before})"
        self.become(ServerState.QUEUED, self.again.after(f"{line}; ") if self.failures else Reason(line))

    @property
    def again(self) -> Reason:
        """The reason shown during a start: the failure before it, if any."""
        return self.last.after("trying again after: ") if self.failures else HEALTHY

    def stop(self, reason: Reason) -> None:
        """Show that the current run, if any, is ending."""
        if self.value.state not in NOT_RUNNING:
            self.become(ServerState.STOPPING, reason)

    def become_inactive(self, reason: Reason) -> None:
        """Show that nothing runs."""
        self.stop(reason)
        if self.value.state is ServerState.STOPPING:
            self.become(ServerState.STOPPED, reason)

    def end(self, reason: Reason = HEALTHY) -> None:
        """From now on, show only stopping and stopped: the child's task is about to be cancelled."""
        self._ends = True
        if self.value.state is not ServerState.STOPPED:
            self.become(ServerState.STOPPING, reason)

    async def wait_settled(self, since: ServerStatus | None = None) -> bool:
        """Wait until the child serves (True) or its attempt fails (False), the current one or `since`'s."""
        seen = since or self.value
        while seen.state not in SERVING:
            if self._ends or seen.state is ServerState.DISABLED:
                return False
            attempts = seen.attempt
            seen = await self.wait_changed(seen)
            if seen.state in WAITING and seen.attempt > attempts and seen.next_retry_at is not None:
                return False
        return True


class Pause:
    """The pause between two runs of a child. A nudge since `renew` cuts it short, even before it begins."""

    def __init__(self) -> None:
        self._hold_until = -math.inf
        self.renew()

    def renew(self) -> None:
        """Forget earlier nudges, because the next run is about to begin."""
        self._nudge, self._scope = trio.Event(), trio.CancelScope()

    @property
    def is_open(self) -> bool:
        """Whether the pause has not been cut short."""
        return not self._nudge.is_set() and self._scope.deadline == math.inf

    @property
    def held(self) -> float:
        """Seconds left of the wait that the server asked for, during which no call starts it."""
        return max(0.0, self._hold_until - trio.current_time())

    def hold(self, seconds: float) -> None:
        """Note that the server asked mcpd to wait this many seconds."""
        self._hold_until = trio.current_time() + seconds
        # A call that came while the end was being reported did not know of this.
        self.renew()

    def release(self) -> None:
        """Cancel a wait that the server asked for."""
        self._hold_until = -math.inf

    def nudge(self) -> None:
        """Let the next run begin now."""
        self._nudge.set()

    def shorten(self, until: float) -> None:
        """Let the next run begin at `until` on trio's clock at the latest."""
        self._scope.deadline = min(self._scope.deadline, until)

    async def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until nudged."""
        self.shorten(trio.current_time() + seconds)
        with self._scope:
            await self._nudge.wait()

    async def wait_nudged(self) -> None:
        """Wait until nudged; a nudge since the last `renew` counts, too."""
        await self._nudge.wait()


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The specification of a child (OTP's term)."""

    name: str
    """Unique within the supervisor."""
    run: Callable[[Lifecycle], Awaitable[None]]
    """The body of one run: returns or raises when it ends, and cleans up even if cancelled."""
    policy: Restart
    lazy: bool = False
    spawns: bool = True
    """Whether the child runs as processes on this machine, whose CPU time can be observed (`starts`)."""
    on_ended: Callable[[int, Run], None] = lambda _number, _run: None
    event_details: Callable[[], Mapping[str, Detail]] = dict
    """Returns details for the event that a run became ready, such as its process id."""
    last_lines: Callable[[int], list[str]] = lambda _number: []
    """Returns the last lines of a run's stderr, for its event."""
    words: Callable[[int], list[str]] = lambda _number: []
    """Returns all output of a run that may explain its end, oldest first."""
    of: str = ""
    """The server whose secrets its reasons may quote; `name` if empty."""
    on_status: Callable[[ServerStatus], None] | None = None


class Lifecycle:
    """Receives a running child's reports of its state."""

    def __init__(self, status: ChildStatus, pause: Pause, start: QueuedStart) -> None:
        self.incarnation = status.runs
        self.ready_at: float | None = None
        self.scope = trio.CancelScope()
        self.restarting = False
        self.idle = False
        self._status = status
        self._pause = pause
        self._start = start
        self._over = False

    def runs_as(self, mark: int) -> None:
        """Report the mark of the child's process tree; while the tree works, the start keeps its place."""
        self._start.runs_as(mark)

    def ready(self) -> None:
        """Report that the child serves."""
        # A child that is being ended may take another step before it notices.
        if self.ready_at is None and not self._over:
            self.ready_at = trio.current_time()
        self._serve(ServerState.READY, HEALTHY)

    def degraded(self, reason: Reason) -> None:
        """Report that the child serves, but not properly, so that it does not count as healthy."""
        self._serve(ServerState.DEGRADED, reason)

    def ending(self, reason: Reason) -> None:
        """Report that only the clean-up remains, for which nobody need wait."""
        if self.restarting or self.idle:
            return
        self._over = True
        self._status.become(ServerState.BACKOFF, reason)

    def restart(self, reason: Reason, grace: float = 0.0) -> None:
        """End this run for a restart, after `grace` seconds, or earlier by `restart_now`."""
        if not self._over:
            self.ending(reason)
        self.restarting = True
        self.scope.deadline = trio.current_time() + grace

    def restart_now(self) -> None:
        """If this run is ending for a restart, end it now."""
        if self.restarting:
            self.scope.cancel()

    def go_idle(self) -> None:
        """Note that the run is about to end for lack of use, so that its reports no longer count."""
        self._over = self.idle = True

    def hold_off(self, seconds: float) -> None:
        """Delay the next run, as the server asked; an operator can still start it."""
        if not self.restarting:
            self._pause.hold(seconds)

    def _serve(self, state: ServerState, reason: Reason) -> None:
        if self._over:
            return
        self._start.leave()
        self._status.untried = False
        self._status.become(state, reason)


ENDED = Reason("it ended", Cause.ENDED)

PARKED_STATUSES = frozenset({78, 126, 127})
"""Exit statuses that a restart does not cure: EX_CONFIG (sysexits.h), and a shell's for a faulty program."""

_NEEDS_AUTH = frozenset({Cause.UNAUTHORIZED, Cause.FORBIDDEN, Cause.LOGIN_REFUSED, *CURED_BY_LOGIN})

_CANNOT_START = frozenset(
    {
        *(Cause.COMMAND_NOT_FOUND, Cause.DIRECTORY_UNUSABLE, Cause.NOT_EXECUTABLE, Cause.NOT_A_PROGRAM),
        *(Cause.CANNOT_START, Cause.SANDBOX_UNAVAILABLE, Cause.CONFIGURATION, Cause.BAD_URL),
        # A retry may ask a person to unlock something, so it is rare, and no call causes one.
        Cause.SECRET_UNAVAILABLE,
        *(Cause.TLS_UNTRUSTED, Cause.TLS_EXPIRED, Cause.TLS_NAME),
    }
)
"""Causes that an early retry cures only if `PASSING`. Others are crashes, except a login's and `ENDED`."""


def ending_of(reason: Reason) -> Ending:
    """The kind of end that a reason means for the restart policy."""
    is_parked = reason.cause is Cause.EXITED and reason.data.get("status") in PARKED_STATUSES
    if is_parked or (reason.cause in _CANNOT_START and reason.data.get("problem") not in PASSING):
        return Ending.CANNOT_START
    if reason.cause in _NEEDS_AUTH:
        return Ending.NEEDS_AUTH
    return Ending.NORMAL if reason.cause is Cause.ENDED else Ending.CRASHED


def reason_of(error: BaseException | None) -> Reason:
    """The reason of a run that raised `error` or returned (None); an internal error is logged in full."""
    if error is None:
        return ENDED
    if isinstance(error, RunError):
        return error.reason
    logger.opt(exception=error).error("internal error in mcpd ended a run")
    said = f"{type(error).__name__}: {error}"
    return Reason(f"internal error in mcpd: {said}", Cause.INTERNAL, {"error": said})


async def contained(
    run: Callable[[], Awaitable[None]], scope: trio.CancelScope, name: str
) -> BaseException | None:
    """The exception boundary: returns the exception of `run`, unless `scope` was cancelled from outside."""
    try:
        with scope:
            await run()
    except Exception as error:  # noqa: BLE001 - the boundary that keeps neighbours alive
        return leaf(error)
    except BaseExceptionGroup as group:
        cancelled, rest = group.split(trio.Cancelled)
        if cancelled is None or rest is None or not isinstance(rest, ExceptionGroup):
            raise
        if trio.current_effective_deadline() > -math.inf:
            # We are not being cancelled: the body raised a foreign cancellation along with its own failure.
            return leaf(rest)
        logger.bind(server=name).opt(exception=rest).warning("failed while stopping")
        raise cancelled from None
    return None
