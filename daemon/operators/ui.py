"""`mcpd ui`: make a link that lets one browser into the console, or end all sessions there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.operators.base import Command, Refused

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


class UiParams(msgspec.Struct, rename="camel"):
    """What is wanted."""

    read_only: bool = False
    """Whether whoever comes by the link may only look."""
    end: bool = False
    """Whether all sessions are to end, instead."""


async def ui(context: OperatorContext, params: UiParams) -> dict[str, object]:
    """Make a link, as `{"link": ...}`, or end all sessions, as `{"ended": how many}`.

    Raises:
        Refused: the configuration switches the console off, or it cannot be served.
    """
    http = context.config.listen.http
    if context.console is None or (http is not None and not http.console):
        raise Refused('the configuration switches the console off ("listen": {"http": {"console": false}})')
    console = context.console()
    if params.end:
        return {"ended": console.end_all()}
    try:
        return {"link": await console.link(may_change=not params.read_only)}
    except OSError as error:
        raise Refused(f"the console cannot be served: {error.strerror or error}") from None


UI = Command("ui", UiParams, ui)
