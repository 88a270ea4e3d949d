"""`mcpd metrics`: every metric, as Prometheus reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.operators.base import Command, NoParams

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


async def metrics(context: OperatorContext, _params: NoParams) -> dict[str, str]:
    """All metrics in the text format of Prometheus: `{"text": ...}`.

    Raises:
        InvalidArguments: the configuration switches metrics off.
    """
    return {"text": await context.counters.export()}


METRICS = Command("metrics", NoParams, metrics)
