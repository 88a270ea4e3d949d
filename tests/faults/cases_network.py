"""What goes wrong between mcpd and a server behind a network, whatever the transport: the port and the line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.faults.case import LATER, Case, Net
from tests.faults.steps import (
    AGAIN,
    UP,
    Answers,
    Call,
    CallFromAnother,
    ComesBack,
    Ended,
    EpochRises,
    GoesAway,
    HasTools,
    Hold,
    Line,
    LinesEnd,
    Lists,
    Reaches,
    Same,
    Served,
    Took,
    Withdraw,
)
from tests.faults.upstreams import NEVER
from tests.faults.wire import Fate, Toxic

if TYPE_CHECKING:
    from tests.faults.case import Step

Json = dict[str, Any]

LOST = "whether the call ran is unknown"
STREAMS = ("unix", "ws", "sse")
"""Transports with one lasting connection: its end is the end of the run."""
ALL = (*STREAMS, "http")
PINGS: Json = {"pingInterval": 0.2, "ping": 0.5, "missedPings": 2}


def net(kind: str, entry: Json | None = None, **more: Any) -> Net:
    """A server behind a transport, and these keys of its configuration."""
    return Net(kind=kind, entry=entry or {}, **more)


def each(name: str, kinds: tuple[str, ...], entry: Json | None, *steps: Step, **more: Any) -> list[Case]:
    """A case for each of these transports."""
    return [Case(name=f"{kind}: {name}", server=net(kind, entry, **more), steps=steps) for kind in kinds]


DOORS = (
    *each(
        "not there at first",
        ("http",),
        {"restart": LATER},
        Reaches("backoff", reason="cannot connect"),
        Call(code="UpstreamUnavailable", says="not sent"),
        ComesBack(),
        Served(),
        AGAIN,
        listens=False,
    ),
    *each(
        "not there for a while",
        ("ws", "sse"),
        None,
        Ended("cannot connect", 3),
        ComesBack(),
        Served(),
        Call(),
        listens=False,
    ),
    *each(
        "goes away and comes back",
        ("ws",),
        None,
        UP,
        Call(),
        GoesAway(),
        Ended("cannot connect"),
        ComesBack(),
        Served(),
        Call(),
    ),
    *each(
        "goes away with calls in flight",
        ALL,
        None,
        UP,
        Hold(5),
        GoesAway(),
        Answers("UpstreamLost", LOST),
        ComesBack(),
        Served(),
    ),
)

LINES = (
    *each(
        "every line ends", ("ws",), None, UP, Hold(3), LinesEnd(), Answers("UpstreamLost", LOST), AGAIN, Call()
    ),
    *each(
        "every line is reset",
        STREAMS,
        None,
        UP,
        Hold(3),
        LinesEnd(reset=True),
        Answers("UpstreamLost", LOST),
        AGAIN,
        Call(),
    ),
    *each(
        "a request's line is reset",
        ("http",),
        None,
        UP,
        Hold(3),
        LinesEnd(reset=True),
        Answers("UpstreamLost", LOST),
        Call(),
        Same(),
    ),
    *each(
        "a line in small pieces", ALL, None, UP, Call(times=3), Same(), up=Toxic(slice=40), down=Toxic(slice=7)
    ),
    *each(
        "a line that is slow",
        ("unix", "http"),
        None,
        UP,
        Call(),
        Same(),
        up=Toxic(latency=0.02, jitter=0.02),
        down=Toxic(latency=0.02, jitter=0.02),
    ),
    *each(
        "a black hole during a call",
        ("unix", "http"),
        {"timeouts": {"call": 0.4}},
        UP,
        Line(down=Toxic(fate=Fate.SWALLOW)),
        Call(code="UpstreamTimeout", says="unknown"),
        Line(),
        Call(code="|UpstreamTimeout"),
        Call(),
    ),
    *each(
        "a black hole that pings find",
        ("http",),
        {"timeouts": PINGS},
        UP,
        Line(down=Toxic(fate=Fate.SWALLOW)),
        Ended("no answer to 2 pings"),
        Line(),
        AGAIN,
        Served(),
    ),
    *each(
        "nothing is taken during a call",
        ("ws", "sse"),
        {"timeouts": {"call": 0.4}},
        UP,
        Line(up=Toxic(fate=Fate.STALL)),
        Call(code="UpstreamTimeout"),
        Line(),
        Call(code="|UpstreamTimeout"),
        Call(),
    ),
    *each(
        "a black hole from the start",
        ("unix", "sse"),
        {"timeouts": {"probe": 0.2, "initialize": 0.3, "connect": 0.5}},
        Ended("no answer to initialize|did not open its stream"),
        Line(),
        Served("UpstreamUnavailable|UpstreamTimeout"),
        down=Toxic(fate=Fate.SWALLOW),
    ),
    *each(
        "cut in the middle of an answer",
        STREAMS,
        None,
        UP,
        Line(down=Toxic(fate=Fate.CUT)),
        Call(code="UpstreamLost", says=LOST),
        Line(),
        AGAIN,
        Call(),
    ),
    *each(
        "half closed in the middle of an answer",
        ("unix", "ws"),
        None,
        UP,
        Line(down=Toxic(fate=Fate.HALF_CLOSE)),
        Call(code="UpstreamLost", says=LOST),
        Line(),
        AGAIN,
        Call(),
    ),
    *(
        case
        for fate, spare in (
            (Fate.CUT, 5),
            (Fate.RESET, 60),
            (Fate.HALF_CLOSE, 60),
            (Fate.CUT, 190),
            (Fate.HALF_CLOSE, 190),
        )
        for case in each(
            f"{fate.name} after {spare} bytes of an answer",
            ("http",),
            None,
            UP,
            Line(down=Toxic(spare=spare, fate=fate)),
            Call("effect", code="UpstreamLost", says=LOST),
            Line(),
            Call(),
            Same(),
        )
    ),
    *each(
        "garbled answers",
        ("unix",),
        {"timeouts": {"call": 0.5}},
        UP,
        Line(down=Toxic(fate=Fate.GARBLE)),
        Call(code="|UpstreamTimeout|UpstreamLost|UpstreamCallError"),
        Line(),
        Call(code="|UpstreamTimeout|UpstreamLost|UpstreamUnavailable"),
        Served("UpstreamUnavailable|UpstreamTimeout"),
    ),
    *each(
        "garbled answers",
        ("http",),
        {"timeouts": {"call": 0.5}},
        UP,
        Line(down=Toxic(fate=Fate.GARBLE)),
        Call(
            "effect", code="|UpstreamTimeout|UpstreamLost|UpstreamCallError|UpstreamUnavailable|RequestTooLarge"
        ),
        Line(),
        Served(),
    ),
)

TALK = (
    *each(
        "a call is cancelled",
        ("ws", "sse", "http"),
        None,
        UP,
        Hold(3),
        Withdraw(),
        Took("notifications/cancelled", 3),
        Call(),
        Same(),
    ),
    *each(
        "a client goes away",
        ("ws", "http"),
        None,
        UP,
        CallFromAnother(),
        Took("notifications/cancelled"),
        Call(),
        Same(),
    ),
    *each(
        "never answers a call",
        ("unix", "http"),
        {"timeouts": {"call": 0.3}},
        UP,
        Call("sleep", code="UpstreamTimeout"),
        Took("notifications/cancelled"),
        Call(),
        Same(),
    ),
    *each(
        "never answers the listing",
        ("http",),
        {"timeouts": {"list": 0.3}},
        Reaches("degraded", reason="no answer to tools/list within 0.3 s"),
        on={"tools/list": [NEVER]},
    ),
    *each(
        "other tools, announced",
        STREAMS,
        None,
        UP,
        Lists(5),
        EpochRises(0),
        HasTools(["echo", "new"]),
        Lists(["echo", "new"]),
        EpochRises(1),
        Call("new"),
        Same(),
    ),
    *each(
        "other tools after it was away",
        ("unix", "sse"),
        None,
        UP,
        Lists(5),
        EpochRises(0),
        GoesAway(),
        HasTools(["echo"], announced=False),
        ComesBack(),
        AGAIN,
        Lists(["echo"]),
        EpochRises(1),
        Call(),
    ),
)

CASES = (*DOORS, *LINES, *TALK)
