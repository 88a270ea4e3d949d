"""The status of a server whose clients have instances of their own, from the statuses of those."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.facts import ServerStatus
from daemon.states import ServerState

if TYPE_CHECKING:
    from collections.abc import Iterable

_RANKS = (
    ServerState.READY,
    ServerState.DEGRADED,
    ServerState.STARTING,
    ServerState.QUEUED,
    ServerState.BACKOFF,
    ServerState.CRASHLOOP,
    ServerState.NEEDS_AUTH,
    ServerState.FAILED,
)
"""What one instance shows of the server before what another shows: whether it works comes first."""

_BY_RANK = {state: rank for rank, state in enumerate(_RANKS)}


def overall(statuses: Iterable[ServerStatus], before: ServerStatus, *, run: int, now: float) -> ServerStatus:
    """The status of the server as a whole: `dormant` while no instance runs or is about to.

    Args:
        statuses: those of its instances.
        before: the last one of the server.
        run: the number of its newest run, counted over all instances.
        now: seconds since the epoch.
    """
    shown = [each for each in statuses if each.state in _BY_RANK]
    leading = min(
        shown,
        key=lambda each: (_BY_RANK[each.state], -each.since),
        default=ServerStatus(state=ServerState.DORMANT),
    )
    return attrs.evolve(
        leading,
        since=before.since if leading.state is before.state else now,
        incarnation=run,
        of_instance=True,
        restarts=sum(each.restarts for each in shown),
    )
