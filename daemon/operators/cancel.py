"""`mcpd cancel`: ends a call that has no answer yet, at its server and for its client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.errors import CallCancelled, InvalidArguments
from daemon.operators.base import Command
from daemon.operators.calls import find, told, under_way
from daemon.operators.clients import OperatorCall

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext
    from daemon.operators.calls import CallUnderWay


class CancelParams(msgspec.Struct):
    """The call that is to end."""

    id: int
    """The number that `calls` shows it by."""


async def cancel(context: OperatorContext, params: CancelParams) -> dict[str, object]:
    """End a call: its server is told (MCP, cancellation), its client gets an error, nothing is sent again.

    Raises:
        InvalidArguments: the call has ended, or there never was one.
    """
    await trio.lowlevel.checkpoint()
    call = find(context, params.id)
    if call is None:
        text = (
            f"no call {params.id} is in flight: it has ended, or there never was one. `mcpd calls` shows them."
        )
        raise InvalidArguments(text)
    now = under_way(call, context)
    error = CallCancelled(_words(now), server=now.server, sent=now.sent)
    if isinstance(call, OperatorCall):
        call.lose(error)
        call.waiting.cancel()
    else:
        call.calls.lose(call, error)
    context.outbox.flush()
    return {"call": told(now)}


CANCEL = Command("cancel", CancelParams, cancel)


def _words(call: CallUnderWay) -> str:
    text = f"an operator has cancelled this call after {call.age:.0f} s (mcpd cancel)."
    if not call.sent:
        return f"{text} It was not sent. Ask the user before you call it again."
    where = f"server {call.server}" if call.server else "its server"
    return f"{text} It was sent to {where}, and may have run. Ask the user before you call it again."
