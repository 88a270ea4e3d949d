"""What operators change while the daemon runs: its configuration, and what is switched on.

A reload is served by one task (`run`), whoever asks: whoever goes away while it is applied leaves nothing half
done, and one waits for the other. What is switched off is the registry's to know and the tree's to follow; here
the word is said, and its effect awaited. Nothing of this is on the way of a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs
import trio
from loguru import logger

from daemon.catalog.snapshot import WHOLE
from daemon.config.names import read_reference, tool_name_is_sound
from daemon.config.trail import ROOT
from daemon.errors import CallError, ConfigError, Fault, InvalidArguments, McpdError, UnknownServer, UnknownTool
from daemon.facts import Switched
from daemon.notify import SERVING, reloading
from daemon.remarks import difference, may_have, note
from daemon.states import COMING, WAITING, ServerState
from daemon.wording import camel, hint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.catalog.reconcile import Plan
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.config.model import Config
    from daemon.config.redactors import Redactors
    from daemon.facts import Fact, ServerStatus
    from daemon.supervision.supervisor import Child
    from daemon.watch import Watch

OUTCOME_SECONDS = 5.0
"""How long an answer waits for servers to come up or to stop; they go on without it. A stop takes up to 4 s."""

READ_SECONDS = 10.0
"""How long the file may take to be read: a file system that hangs must not cost every later reload."""

_MOVING = COMING | {ServerState.STOPPED, ServerState.STOPPING}
"""States that are passed through: nobody asked for them."""


class Refused(McpdError):
    """A word that cannot be obeyed; the text says why and what would be."""


class Book(Protocol):
    """The registry, as operators' words need it."""

    catalog: Watch[Catalog]

    def tell(self, fact: Fact) -> None:
        """Leave a fact."""

    async def settle(self) -> None:
        """Return once everything told so far is in the catalog."""


class Refreshable(Protocol):
    """A server that can be told to list its tools now."""

    async def refresh(self) -> str:
        """List them; returns what went wrong, empty if nothing did.

        Raises:
            CallError: it is not up, and cannot be woken.
        """


@attrs.frozen(kw_only=True)
class Desk:
    """What obeying takes."""

    registry: Book
    """Knows the catalog."""
    read: Callable[[], Config]
    """Reads the configuration anew, in a worker thread; raises `ConfigError`."""
    apply: Callable[[Config], Awaitable[Plan]]
    """Puts it in force."""
    children: Mapping[str, Child]
    """The running servers, as the supervisor knows them."""
    upstreams: Mapping[str, Refreshable]
    """The same, as callers do."""
    source: str
    """The file, as texts name it."""
    notify: Callable[[str], None]
    """Tells the service manager."""
    redact: Redactors
    """Takes secrets out of what is shown."""
    unkept: Callable[[], Awaitable[str]]
    """Waits until the words are on disk, for a bounded time; returns why they are not, empty if they are."""
    patience: float = READ_SECONDS
    """Seconds that reading may take."""


class _Ask:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.plan: Plan | None = None
        self.error: Exception | None = None


class Operating:
    """Obeys operators."""

    def __init__(self, desk: Desk) -> None:
        """Prepare; `run` serves."""
        self._desk = desk
        self._words = trio.Lock()
        # A rendezvous: with a buffer, who asks while the daemon goes down would wait for ever.
        self._ask, self._asked = trio.open_memory_channel[_Ask](0)

    @property
    def _catalog(self) -> Catalog:
        return self._desk.registry.catalog.value

    # --- the configuration ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve reloads, one at a time, until cancelled; whoever waits then is refused."""
        async with self._asked:
            async for ask in self._asked:
                try:
                    ask.plan = await self._reload()
                except Exception as error:  # noqa: BLE001 - the boundary: a bug of ours costs this reload
                    if not isinstance(error, McpdError):
                        logger.exception("a fault of mcpd's own while applying a configuration")
                    ask.error = error
                finally:
                    ask.done.set()

    async def reload(self) -> Plan:
        """Read the configuration anew and put it in force; one that is under way is waited for.

        Raises:
            ConfigError: it is faulty: nothing was changed.
            Refused: the daemon goes down.
        """
        ask = _Ask()
        try:
            await self._ask.send(ask)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise _going_down() from None
        await ask.done.wait()
        if ask.error is not None:
            raise ask.error
        if ask.plan is None:
            raise _going_down()
        return ask.plan

    async def report_reload(self) -> dict[str, object]:
        """`reload` for operators: the plan, and how the servers that it started are, a few seconds later.

        Raises:
            ConfigError: the configuration is faulty: nothing was changed.
            Refused: the daemon goes down.
        """
        plan = await self.reload()
        started = {
            name: child
            for name in (*plan.added, *plan.enabled, *plan.restarted)
            if (child := self._desk.children.get(name)) is not None
        }
        with trio.move_on_after(OUTCOME_SECONDS):
            async with trio.open_nursery() as nursery:
                for child in started.values():
                    nursery.start_soon(child.status.wait_until, _is_known)
        told: dict[str, object] = {
            camel(field): list(names) for field, names in attrs.asdict(plan, recurse=False).items()
        }
        return {"config": self._desk.source, **told, "states": {name: self._state(name) for name in started}}

    async def _reload(self) -> Plan:
        desk = self._desk
        desk.notify(reloading())
        try:
            plan = await desk.apply(await self._read_anew())
        except ConfigError as error:
            desk.notify(SERVING)
            raise self._told(error) from None
        except Exception:
            desk.notify(SERVING)
            raise
        desk.notify(SERVING)
        logger.info("{}: {}", desk.source, in_words(plan))
        return plan

    async def _read_anew(self) -> Config:
        """Read in a thread that is left behind if it hangs."""
        with trio.move_on_after(self._desk.patience):
            return await trio.to_thread.run_sync(self._desk.read, abandon_on_cancel=True)
        why = f"it cannot be read, no answer within {self._desk.patience:g} s: look at its file system"
        raise ConfigError(self._desk.source, [Fault(path=ROOT, message=why)])

    def _told(self, error: ConfigError) -> ConfigError:
        redact = self._desk.redact
        faults = [attrs.evolve(fault, message=redact(fault.message)) for fault in error.faults]
        for fault in faults:
            logger.error("{}: {}", error.source, fault)
        logger.error("{} is faulty: nothing was changed", error.source)
        return ConfigError(error.source, faults)

    # --- words -----------------------------------------------------------------------------------------------

    async def switch(self, reference: str, *, off: bool) -> dict[str, object]:
        """Switch a server, or one of its tools, off or on.

        Args:
            reference: `server`, `server/tool` or `mcp__server__tool`.
            off: whether off.

        Raises:
            UnknownServer: there is none of that name.
            UnknownTool: the server lists none of that name.
            InvalidArguments: it is no name.
            Refused: it is the configuration that switches it off.
        """
        key = self._read(reference)
        async with self._words:
            # What another has said is in the catalog then: a word is a set, and must not undo theirs.
            await self._desk.registry.settle()
            known = self._catalog.switched
            already = (key in known) == off
            self._check(key, off=off)
            if not already:
                self._desk.registry.tell(Switched(off=known | {key} if off else known - {key}))
                await self._desk.registry.settle()
                what = f"tool {key[1]}" if key[1] else "the server"
                logger.bind(server=key[0]).info("an operator has switched {} {}", what, "off" if off else "on")
        return await self._switched(key, off=off, already=already)

    async def _switched(self, key: tuple[str, str], *, off: bool, already: bool) -> dict[str, object]:
        server, tool = key
        child = self._desk.children.get(server)
        if tool == WHOLE and child is not None:
            with trio.move_on_after(OUTCOME_SECONDS):
                await child.status.wait_until(lambda status: _is_in_line(status.state, off=off))
        unkept = await self._desk.unkept()
        remarks = [note(self._catalog, key, off=off), unkept and f"it is lost if mcpd ends now: {unkept}"]
        return {
            "server": server,
            "tool": tool or None,
            "off": off,
            "already": already,
            "note": "; ".join(filter(None, remarks)),
            **self._state(server),
        }

    def _state(self, server: str) -> dict[str, str]:
        child, entry = self._desk.children.get(server), self._catalog.servers.get(server)
        # The child's own if it has one: what it told last may not be in the catalog yet.
        if child is not None:
            status = child.status.value
        elif entry is not None:
            status = entry.status
        else:
            return {"state": "", "reason": ""}
        return {"state": str(status.state), "reason": self._desk.redact.of(server)(status.reason)}

    def _read(self, reference: str) -> tuple[str, str]:
        catalog = self._catalog
        servers = {*catalog.servers, *(server for server, _tool in catalog.switched)}
        if reference in servers:
            return reference, WHOLE
        read = read_reference(reference, servers)
        if read.server is None:
            return read.tool, WHOLE
        if not tool_name_is_sound(read.tool):
            raise InvalidArguments(f"{reference!r} names no tool: write SERVER or SERVER/TOOL")
        return read.server, read.tool

    def _check(self, key: tuple[str, str], *, off: bool) -> None:
        """Raise what speaks against a word; one that only takes back what was said is always heard."""
        catalog = self._catalog
        if key in catalog.switched:
            return
        server, tool = key
        entry = catalog.servers.get(server)
        if entry is None:
            raise UnknownServer(f"no server is named {server!r}. {hint(server, catalog.servers)}")
        if tool and not may_have(entry, tool):
            raise UnknownTool(f"server {server} has no tool {tool!r}. {hint(tool, entry.tools or {})}")
        if not off:
            self._check_config(key)

    def _check_config(self, key: tuple[str, str]) -> None:
        catalog, source = self._catalog, self._desk.source
        server, tool = key
        if not catalog.config.mcp_servers[server].enabled:
            raise Refused(
                f"the configuration switches server {server} off, so no command can switch it on: write"
                f' "enabled": true at $.mcpServers.{server} in {source}, then `mcpd reload`'
            )
        if tool and key in catalog.off:
            raise Refused(
                f"the configuration switches {server}/{tool} off in every category that has it, so no command"
                f' can switch it on: change "overrides" there in {source}, then `mcpd reload`'
            )

    # --- lists -----------------------------------------------------------------------------------------------

    async def refresh(self, server: str | None) -> dict[str, object]:
        """Have a server list its tools now; None: all that are up, at the same time.

        Raises:
            UnknownServer: there is none of that name.
        """
        catalog = self._catalog
        if server is not None and server not in catalog.servers:
            raise UnknownServer(f"no server is named {server!r}. {hint(server, catalog.servers)}")
        names = [name for name, entry in catalog.servers.items() if entry.available]
        told: dict[str, object] = dict.fromkeys(names if server is None else [server])
        async with trio.open_nursery() as nursery:
            for name in told:
                # The entry as it is now: a reload may take the server away before its task begins.
                nursery.start_soon(self._refresh, catalog.servers[name], told)
        return {"servers": told}

    async def _refresh(self, before: ServerEntry, told: dict[str, object]) -> None:
        name = before.name
        upstream = self._desk.upstreams.get(name)
        problem = f"server {name} is switched off in the configuration"
        if upstream is not None:
            try:
                problem = await upstream.refresh()
            except CallError as error:
                problem = error.message
        await self._desk.registry.settle()
        after = self._catalog.servers.get(name)
        if after is None:
            told[name] = {"problem": f"server {name} was removed from the configuration meanwhile"}
        else:
            problem = self._desk.redact.of(name)(problem or after.listing_error)
            told[name] = {**difference(before, after), "problem": problem}


def in_words(plan: Plan) -> str:
    """A plan in one line, for logs."""
    told = {
        "added": plan.added,
        "removed": plan.removed,
        "switched on": plan.enabled,
        "switched off": plan.disabled,
        "restarted": plan.restarted,
        "changed": plan.changed,
        "applied": plan.sections,
        "needs a new start of mcpd": plan.needs_restart_of_daemon,
    }
    parts = [f"{what}: {', '.join(names)}" for what, names in told.items() if names]
    return "; ".join([*parts, f"unchanged servers: {len(plan.kept)}"])


def _going_down() -> Refused:
    return Refused("mcpd is shutting down: nothing was changed. Its next start reads the configuration anyway.")


def _is_known(status: ServerStatus) -> bool:
    """Whether it is known what became of a start; one that waits for no next try is being restarted."""
    waits = status.state in WAITING and status.next_retry_at is None
    return not waits and status.state not in _MOVING


def _is_in_line(state: ServerState, *, off: bool) -> bool:
    return state is ServerState.DISABLED if off else state not in {*_MOVING, ServerState.DISABLED}
