"""Tools that are taken away from a session again, by an operator: what it has not loaded, it cannot call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from daemon.clients.sessions import Memory

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from daemon.clients.session_state import SessionState
    from daemon.clients.sessions import Sessions
    from daemon.model import ToolKey


class SharedMemory(Memory, Protocol):
    """Where sessions with a key are stored, perhaps by several daemons."""

    async def look(self) -> None:
        """Return once all that other daemons wrote before now is known here, or cannot be for now."""


async def unload(
    sessions: Sessions, memory: SharedMemory, identity: Hashable, keys: Collection[ToolKey]
) -> bool:
    """Take tools away from a session, in use or only kept; its clients are told of their changed lists.

    Args:
        sessions: the sessions in use.
        memory: where sessions with a key are stored.
        identity: what identifies the session (`SessionState.identity`): its key, if it has one.
        keys: the tools. What a profile preloads is loaded again with the next change of the catalog.

    Returns:
        Whether that will outlive the daemon; True for a session of which nothing is kept.

    Raises:
        McpdError: the session is not in use, and the store does not answer.
    """
    # A row that another daemon wrote, and that is not known here yet, would not be deleted (`state.writing`).
    await memory.look()
    state = _in_use(sessions, identity)
    if state is None and isinstance(identity, str):
        record = await memory.recall(identity)
        state = _in_use(sessions, identity)
        if state is None and record is not None:
            memory.keep(attrs.evolve(record, loaded=record.loaded.without(keys)))
            return await memory.kept(identity)
    if state is None:
        return True
    if state.become(state.loaded.without(keys)):
        sessions.keep(state)
    return state.key is None or await memory.kept(state.key)


def _in_use(sessions: Sessions, identity: Hashable) -> SessionState | None:
    each = (*sessions.named.values(), *sessions.own)
    return next((state for state in each if state.identity == identity), None)
