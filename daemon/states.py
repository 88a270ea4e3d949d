"""The states of a supervised server and all moves between them; the words are a contract with `mcpd status`."""

from __future__ import annotations

from enum import StrEnum


class ServerState(StrEnum):
    """A server's present activity, for operators and models."""

    QUEUED = "queued"
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    BACKOFF = "backoff"
    CRASHLOOP = "crashloop"
    NEEDS_AUTH = "needs_auth"
    FAILED = "failed"
    DORMANT = "dormant"
    DISABLED = "disabled"
    STOPPING = "stopping"
    STOPPED = "stopped"


_S = ServerState

_IN_SENTENCES: dict[str, str] = {
    _S.BACKOFF: "in backoff",
    _S.CRASHLOOP: "in a crash loop",
    _S.NEEDS_AUTH: "waiting for a login",
}


def in_sentence(state: str) -> str:
    """The words for a state after "the server is"."""
    return _IN_SENTENCES.get(state, state)


COMING = frozenset({_S.QUEUED, _S.STARTING})
"""States in which a start is under way or queued."""

WAITING = frozenset({_S.BACKOFF, _S.CRASHLOOP, _S.NEEDS_AUTH, _S.FAILED})
"""States in which the server is down, with a retry scheduled."""

PASSED_THROUGH = COMING | {_S.STOPPED, _S.STOPPING}
"""Transient states: a server in one of them is on its way to another."""

SERVING = frozenset({_S.READY, _S.DEGRADED})
"""States with a connection that takes calls."""

WELL = frozenset({_S.READY, _S.DORMANT, _S.DISABLED})
"""States that need no operator: `mcpd status` exits with 0 if all servers are in these."""

WAKEABLE = frozenset({_S.QUEUED, _S.BACKOFF, _S.CRASHLOOP, _S.DORMANT})
"""States whose wait a call may shorten; parked servers (failed, needs_auth) wait for a change or operator."""

WORST_FIRST = (
    *(_S.FAILED, _S.CRASHLOOP, _S.NEEDS_AUTH, _S.BACKOFF, _S.DEGRADED),
    *(_S.QUEUED, _S.STARTING, _S.STOPPING, _S.STOPPED, _S.READY, _S.DORMANT, _S.DISABLED),
)
"""The order of lists: servers that need an operator, then moving ones, then healthy ones."""

TRANSITIONS: dict[ServerState, frozenset[ServerState]] = {
    _S.STOPPED: frozenset({_S.QUEUED, _S.STARTING, _S.DORMANT, _S.DISABLED}),
    _S.DORMANT: frozenset({_S.QUEUED, _S.STARTING, _S.STOPPING, _S.DISABLED}),
    _S.DISABLED: frozenset({_S.QUEUED, _S.STARTING, _S.DORMANT, _S.STOPPING}),
    _S.QUEUED: frozenset({_S.STARTING, _S.STOPPING}),
    _S.STARTING: frozenset({_S.READY, _S.DEGRADED, _S.STOPPING}) | WAITING,
    _S.READY: frozenset({_S.DEGRADED, _S.STOPPING, _S.QUEUED, _S.STARTING, _S.DORMANT}) | WAITING,
    _S.DEGRADED: frozenset({_S.READY, _S.STOPPING, _S.QUEUED, _S.STARTING, _S.DORMANT}) | WAITING,
    _S.BACKOFF: frozenset({_S.QUEUED, _S.STARTING, _S.STOPPING}) | WAITING,
    _S.CRASHLOOP: frozenset({_S.QUEUED, _S.STARTING, _S.STOPPING}),
    _S.NEEDS_AUTH: frozenset({_S.QUEUED, _S.STARTING, _S.STOPPING}),
    _S.FAILED: frozenset({_S.QUEUED, _S.STARTING, _S.STOPPING}),
    _S.STOPPING: frozenset({_S.STOPPED}),
}
