"""The page of calls: those without an answer, which can be cancelled, and the last thousand that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.console.page import (
    ConsoleAction,
    ConsolePage,
    Fragment,
    element_id,
    server_page,
    session_page,
    tool_page,
    with_query,
)
from daemon.counting.recent_calls import KEPT
from daemon.errors import InvalidArguments
from daemon.operators.calls import CALLS, CANCEL, CallsParams, CancelParams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.console.page import Viewer

SHOWN = 100
"""Ended calls on one page, and the most calls without an answer."""

LAST_PAGE = -(-KEPT // SHOWN)

LONGEST_NUMBER = 6
"""Digits of a page's number: there are no such pages, and Python refuses to read a number of thousands."""

_WAITS_FOR = {
    "server": "its server to come up",
    "turn": "a place at its server",
    "answer": "the answer",
    "client": "its client",
    "store": "the store",
}
"""What a call waits for, in words."""


async def _fragments(viewer: Viewer) -> Mapping[str, Sequence[Fragment]]:
    wanted = {name: viewer.query.get(name, "") for name in ("server", "session", "errors")}
    number = _page_number(viewer.query.get("page", ""))
    params = CallsParams(
        server=wanted["server"] or None,
        session=wanted["session"] or None,
        errorsOnly=bool(wanted["errors"]),
        limit=KEPT,
    )
    report: Any = await CALLS.run(viewer.context, params)
    ended = report["recent"][::-1]
    shown = ended[(number - 1) * SHOWN : number * SHOWN]
    pages = min(LAST_PAGE, max(1, -(-len(ended) // SHOWN)))
    return {
        "calls-filter": [_filter(viewer, wanted)],
        "calls-notes": [
            Fragment(
                id="calls-summary",
                template="calls_summary.html",
                values={
                    "waiting": len(report["inFlight"]) + report["inFlightMore"],
                    "ended": len(ended),
                    "failed": sum(each["outcome"] != "ok" for each in ended),
                    "filtered": any(wanted.values()),
                    "kept": KEPT,
                },
            )
        ],
        "in-flight": [_under_way(each, may_change=viewer.may_change) for each in report["inFlight"][:SHOWN]],
        "ended": [_ended(each) for each in shown],
        "calls-pages": [
            Fragment(
                id="calls-pager",
                template="calls_pages.html",
                values={
                    "number": number,
                    "pages": pages,
                    "newer": with_query("/calls", **wanted, page=number - 1) if number > 1 else "",
                    "older": with_query("/calls", **wanted, page=number + 1) if number < pages else "",
                },
            )
        ],
    }


CALLS_PAGE = ConsolePage(
    path="/calls",
    title="Calls",
    template="calls.html",
    fragments=_fragments,
    calls_every=2.0,  # Whoever looks at calls looks for those that hang.
)


def _page_number(written: str) -> int:
    sound = written.isascii() and written.isdecimal() and len(written) <= LONGEST_NUMBER
    return min(max(int(written), 1), LAST_PAGE) if sound else 1


def _filter(viewer: Viewer, wanted: Mapping[str, str]) -> Fragment:
    servers = [*viewer.context.catalog.servers]
    return Fragment(id="calls-wanted", template="calls_filter.html", values={"servers": servers, **wanted})


def caller(call: Mapping[str, Any]) -> dict[str, Any]:
    """Who has made a call, and for which server: what all tables of calls show."""
    is_tool = call["server"] and call.get("method", "tools/call") == "tools/call"
    session = call["key"] or (None if call["session"] is None else f"#{call['session']}")
    return {
        "client": call["client"],
        "token": call["token"],
        "session": session,
        "session_page": session and session_page(session),
        "server": call["server"],
        "server_page": server_page(call["server"]),
        "tool": call["tool"],
        "tool_page": tool_page(call["server"], call["tool"]) if is_tool else "",
    }


def waiting(call: Mapping[str, Any]) -> dict[str, Any]:
    """For how long a call is waited for, and for what."""
    return {
        "instance": call["instance"],
        # To the second: an age is computed anew at each look, and must not differ by rounding.
        "since": round(call["since"]),
        "waits_for": _WAITS_FOR.get(call["waitsFor"], call["waitsFor"]),
    }


def _under_way(call: Mapping[str, Any], *, may_change: bool) -> Fragment:
    element = element_id("waiting", str(call["id"]))
    values = {
        **caller(call),
        **waiting(call),
        "element": element,
        "id": call["id"],
        "method": call["method"],
        "may_change": may_change,
    }
    return Fragment(id=element, template="calls_waiting.html", values=values)


def _ended(call: Mapping[str, Any]) -> Fragment:
    element = element_id("call", str(call["number"]))
    values = {
        **caller(call),
        "element": element,
        "at": call["at"],
        "ms": call["ms"],
        "outcome": call["outcome"],
    }
    return Fragment(id=element, template="calls_row.html", values=values)


async def _cancel(viewer: Viewer, _fields: Mapping[str, str]) -> str:
    written = viewer.path.get("id", "")
    if not (written.isascii() and written.isdecimal() and len(written) <= 18):  # noqa: PLR2004 - digits of an int64
        raise InvalidArguments("a call is named by its number")
    report: Any = await CANCEL.run(viewer.context, CancelParams(id=int(written)))
    call = report["call"]
    where = f"{call['server']}/{call['tool']}" if call["server"] else call["tool"]
    return f"Call {call['id']} of {where} is cancelled; its client is told."


CANCEL_CALL = ConsoleAction(path="/calls/{id}/cancel", act=_cancel)
