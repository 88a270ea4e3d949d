"""Lists a server that clients do not share once before any client: an agent may read its list only once.

An instance in an empty directory lists, and ends at once. With `"start": "lazy"` nothing runs before a client.
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio
from loguru import logger

from daemon.catalog.definitions import fingerprint
from daemon.config.model import StartMode
from daemon.errors import CallError
from daemon.ports import Holder
from daemon.states import COMING, SERVING, ServerState
from daemon.supervision.starts import Rank
from daemon.upstreams.instances.instanced import InstancedServer
from daemon.upstreams.instances.server_instances import FIRST_LIST
from daemon.upstreams.supervised import SupervisedServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.snapshot import Catalog
    from daemon.kit.mailbox import Watch

LIST_SECONDS = 600.0
"""Seconds after which such an instance is ended: enough for its turn among many starts, and for a package that
is downloaded. The start has the deadlines of every start, too."""

LEAVE_SECONDS = 30.0
"""Seconds that the directory stays for an instance that does not stop: a kill ends nearly all sooner."""

PREFIX = "mcpd-list-"
"""What the names of the directories begin with, among those of TMPDIR."""

_DIRECTORY = partial(tempfile.TemporaryDirectory[str], prefix=PREFIX, ignore_cleanup_errors=True)

A = TypeVar("A", bound=SupervisedServer)


async def keep_listing(servers: Mapping[str, A | InstancedServer[A]], newest: Watch[Catalog]) -> None:
    """List servers once that have instances and no known tools, as they appear, until cancelled.

    Args:
        servers: the servers by name; read again with each catalog.
        newest: the newest catalog, with what the store knows.
    """
    # Never more than there were configurations of servers in this life of the daemon.
    tried: set[tuple[str, str]] = set()
    async with trio.open_nursery() as nursery:
        while True:
            seen = newest.value
            for name, server in servers.items():
                entry = seen.servers.get(name)
                if entry is None or entry.tools is not None or (name, entry.fingerprint) in tried:
                    continue
                if isinstance(server, InstancedServer) and _may_list(server, entry.fingerprint):
                    tried.add((name, entry.fingerprint))
                    nursery.start_soon(_list_once, server)
            await newest.wait_changed(seen)


def _may_list(server: InstancedServer[A], known: str) -> bool:
    """Whether a server may be started, and is the one whose fingerprint the catalog knows (faulty: none)."""
    configured = server.server
    is_wanted = configured.start is not StartMode.LAZY and not server.instances.off
    return is_wanted and bool(known) and known == fingerprint(configured)


async def _list_once(server: InstancedServer[A]) -> None:
    made = None
    try:
        made = await trio.to_thread.run_sync(_DIRECTORY)
        # A client's instance lists as well.
        if not server.instances.running:
            await _list_in(made.name, server)
    except (OSError, CallError) as error:
        logger.bind(server=server.name).info("is not listed before its first client: {}", error)
    finally:
        if made is not None:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(made.cleanup)


async def _list_in(directory: str, server: InstancedServer[A]) -> None:
    holder = Holder(session=object(), number=0, owner=FIRST_LIST, workspace=directory)
    child = (actor := server.instances.of(holder)).child
    if actor.use is not None:
        actor.use.seconds = LIST_SECONDS
    child.wake(Rank.OTHER)
    try:
        # One attempt: the first client makes the next.
        status = await child.status.wait_until(
            lambda now: now.attempt > 0 or now.state not in COMING | {ServerState.DORMANT}
        )
        # The end of the daemon shows as a status before it cancels this task: then the supervisor ends all.
        await trio.lowlevel.checkpoint()
        is_listed = status.state in SERVING
        why = "it has listed" if is_listed else f"it did not come up to list ({status.reason or status.state})"
        actor.log.say("INFO", f"{why}, and no client waits for this instance")
        for each in [each for each in server.instances.running.values() if each.actor is actor]:
            server.instances.end(each, why)
    finally:
        with trio.move_on_after(LEAVE_SECONDS, shield=True):
            await child.left.wait()
