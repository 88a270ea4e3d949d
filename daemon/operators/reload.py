"""`mcpd reload`: read the configuration, apply it, and report the effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from daemon.kit.wording import camel
from daemon.operators.base import OUTCOME_SECONDS, PASSED_THROUGH, Command, NoParams
from daemon.states import WAITING

if TYPE_CHECKING:
    from daemon.facts import ServerStatus
    from daemon.operators.base import OperatorContext


async def reload(context: OperatorContext, _params: NoParams) -> dict[str, object]:
    """Apply the configuration; returns the plan, and the states of started servers a few seconds later.

    Raises:
        ConfigError: the configuration is faulty, and nothing was changed.
        Refused: the daemon is shutting down.
    """
    plan = await context.reload()
    started = {
        name: child
        for name in (*plan.added, *plan.enabled, *plan.restarted)
        if (child := context.children.get(name)) is not None
    }
    with trio.move_on_after(OUTCOME_SECONDS):
        async with trio.open_nursery() as nursery:
            for child in started.values():
                nursery.start_soon(child.status.wait_until, _is_known)
    carried_out = {camel(field): list(names) for field, names in attrs.asdict(plan, recurse=False).items()}
    states = {name: context.state_of(name) for name in started}
    return {"config": context.facts.config, **carried_out, "states": states}


RELOAD = Command("reload", NoParams, reload)


def _is_known(status: ServerStatus) -> bool:
    """Whether the outcome of a start is known; a waiting server without a next try is being restarted."""
    waits = status.state in WAITING and status.next_retry_at is None
    return not waits and status.state not in PASSED_THROUGH
