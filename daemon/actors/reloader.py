"""The reloader: reads the configuration and applies it; concurrent requests share one reload."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio
from loguru import logger

from daemon.config.config_model import Config
from daemon.config.jsonc import ROOT
from daemon.config.parse import Plan
from daemon.errors import ConfigError, Fault, McpdError
from daemon.history.event import Event, EventKind
from daemon.host.notify import SERVING, reloading
from daemon.operators.base import Refused

READ_SECONDS = 10.0
"""Seconds for reading the file: a hanging file system must not block all later reloads."""


class _Request:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.plan: Plan | None = None
        self.error: Exception | None = None


@attrs.define(eq=False, kw_only=True, repr=False)
class Reloader:
    """Reloads the configuration on request."""

    _read: Callable[[], Config]
    """Reads the configuration, in a worker thread."""
    _apply: Callable[[Config], Awaitable[Plan]]
    _source: str
    _notify: Callable[[str], None]
    _redact: Callable[[str], str]
    _patience: float = READ_SECONDS
    _note: Callable[[Event], None] = lambda _event: None
    _ask: trio.MemorySendChannel[_Request] = attrs.field(init=False)
    _asked: trio.MemoryReceiveChannel[_Request] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # A rendezvous: a request that is buffered when the daemon goes down would never be answered.
        self._ask, self._asked = trio.open_memory_channel[_Request](0)

    async def run(self) -> None:
        """Serve reloads one at a time until cancelled; then refuse waiting requests."""
        async with self._asked:
            async for request in self._asked:
                try:
                    request.plan = await self._reload()
                except Exception as error:  # noqa: BLE001 - the boundary: a bug in mcpd costs this reload
                    if not isinstance(error, McpdError):
                        logger.exception("internal error in mcpd while applying a configuration")
                    request.error = error
                finally:
                    request.done.set()

    async def reload(self) -> Plan:
        """Read and apply the configuration after any reload in progress; raises `ConfigError` or `Refused`."""
        request = _Request()
        try:
            await self._ask.send(request)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise _going_down() from None
        await request.done.wait()
        if request.error is not None:
            raise request.error
        if request.plan is None:
            raise _going_down()
        return request.plan

    async def _reload(self) -> Plan:
        self._notify(reloading())
        try:
            plan = await self._apply(await self._read_in_time())
        # Not when cancelled: the daemon is shutting down then, and no longer serves.
        except Exception as error:
            self._notify(SERVING)
            if isinstance(error, ConfigError):
                raise self._logged(error) from None
            raise
        self._notify(SERVING)
        logger.bind(event=True).info("{}: {}", self._source, in_words(plan))
        self._note(Event(kind=EventKind.RELOADED, details=_told(plan)))
        return plan

    async def _read_in_time(self) -> Config:
        with trio.move_on_after(self._patience):
            return await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
        why = f"it cannot be read: its file system gave no answer within {self._patience:g} s"
        raise ConfigError(self._source, [Fault(path=ROOT, message=why)])

    def _logged(self, error: ConfigError) -> ConfigError:
        faults = [attrs.evolve(fault, message=self._redact(fault.message)) for fault in error.faults]
        for fault in faults:
            logger.error("{}: {}", error.source, fault)
        logger.error("{} is faulty: nothing was changed", error.source)
        self._note(Event(kind=EventKind.RELOADED, text="; ".join(map(str, faults))))
        return ConfigError(error.source, faults)


def _told(plan: Plan) -> dict[str, list[str]]:
    told = {
        "added": plan.added,
        "removed": plan.removed,
        "switched on": plan.enabled,
        "switched off": plan.disabled,
        "restarted": plan.restarted,
        "changed": plan.changed,
        "applied": plan.sections,
        "needs a restart of mcpd": plan.needs_restart_of_daemon,
        "left out": plan.faults,
    }
    return {what: list(names) for what, names in told.items() if names}


def in_words(plan: Plan) -> str:
    """A plan in one line, for logs."""
    parts = [f"{what}: {', '.join(names)}" for what, names in _told(plan).items()]
    return "; ".join([*parts, f"unchanged servers: {len(plan.kept)}"])


def _going_down() -> Refused:
    return Refused("mcpd is shutting down: nothing was changed. Its next start reads the configuration anyway.")
