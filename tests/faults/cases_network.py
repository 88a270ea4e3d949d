"""What goes wrong between mcpd and a server behind a network, whatever the transport: the port and the line."""

from collections.abc import Callable
from typing import Any

from tests.faults.case import LATER, Case, Step
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
    Served,
    Took,
    Withdraw,
    again,
    back,
    case,
    net,
    same,
)
from tests.faults.upstreams import NEVER
from tests.faults.wire import Fate, Toxic

Json = dict[str, Any]

STREAMS = ("unix", "ws", "sse")
"""Transports with one lasting connection: its end is the end of the run."""
ALL = (*STREAMS, "http")

HASTY: Json = {"timeouts": {"call": 0.4}}
LOST = Answers("UpstreamLost", "whether the call ran is unknown")
TOLD_LOST = Call("effect", code="UpstreamLost", says="whether the call ran is unknown")
LATE = Toxic(latency=0.02, jitter=0.02)
SPOILT = Call(
    "effect", code="|UpstreamTimeout|UpstreamLost|UpstreamCallError|UpstreamUnavailable|RequestTooLarge"
)


def each(
    shape: Callable[..., Case], name: str, kinds: tuple[str, ...], entry: Json | None, *steps: Step, **more: Any
) -> list[Case]:
    """A case of this shape for each of these transports."""
    return [shape(name, net(kind, entry, **more), *steps) for kind in kinds]


def answers_meet(fate: Fate, spare: int = 0) -> Line:
    """From now on this becomes of answers."""
    return Line(down=Toxic(fate=fate, spare=spare))


DOORS = (
    case(
        "not there at first",
        net("http", {"restart": LATER}, listens=False),
        *(Reaches("backoff", reason="cannot connect"), Call(code="UpstreamUnavailable", says="not sent")),
        *(ComesBack(), Served(), AGAIN),
    ),
    *each(
        *(case, "not there for a while", ("ws", "sse"), None),
        *(Ended("cannot connect", 3), ComesBack(), Served(), Call()),
        listens=False,
    ),
    *each(
        *(back, "goes away and comes back", ("ws",), None),
        *(Call(), GoesAway(), Ended("cannot connect"), ComesBack()),
    ),
    *each(back, "goes away with calls in flight", ALL, None, Hold(5), GoesAway(), LOST, ComesBack()),
)

LINES = (
    *each(again, "every line ends", ("ws",), None, Hold(3), LinesEnd(), LOST),
    *each(again, "every line is reset", STREAMS, None, Hold(3), LinesEnd(reset=True), LOST),
    *each(same, "a request's line is reset", ("http",), None, Hold(3), LinesEnd(reset=True), LOST),
    *each(same, "a line in small pieces", ALL, None, Call(times=3), up=Toxic(slice=40), down=Toxic(slice=7)),
    *each(same, "a line that is slow", ("unix", "http"), None, Call(), up=LATE, down=LATE),
    *each(
        *(case, "a black hole during a call", ("unix", "http"), HASTY),
        *(UP, answers_meet(Fate.SWALLOW), Call(code="UpstreamTimeout", says="may have run"), Line()),
        *(Call(code="|UpstreamTimeout"), Call()),
    ),
    *each(
        *(back, "a black hole that pings find", ("http",)),
        {"timeouts": {"pingInterval": 0.2, "ping": 0.5, "missedPings": 2}},
        *(answers_meet(Fate.SWALLOW), Ended("no answer to 2 pings"), Line(), AGAIN),
    ),
    *each(
        *(case, "nothing is taken during a call", ("ws", "sse"), HASTY),
        *(UP, Line(up=Toxic(fate=Fate.STALL)), Call(code="UpstreamTimeout"), Line()),
        *(Call(code="|UpstreamTimeout"), Call()),
    ),
    *each(
        *(case, "a black hole from the start", ("unix", "sse")),
        {"timeouts": {"probe": 0.2, "initialize": 0.3, "connect": 0.5}},
        *(Ended("no answer to initialize|did not open its stream"), Line()),
        Served("UpstreamUnavailable|UpstreamTimeout"),
        down=Toxic(fate=Fate.SWALLOW),
    ),
    *each(again, "cut in the middle of an answer", STREAMS, None, answers_meet(Fate.CUT), TOLD_LOST, Line()),
    *each(
        *(again, "half closed in the middle of an answer", ("unix", "ws"), None),
        *(answers_meet(Fate.HALF_CLOSE), TOLD_LOST, Line()),
    ),
    *(
        same(
            f"{fate.name} after {spare} bytes of an answer",
            net("http"),
            *(answers_meet(fate, spare), TOLD_LOST, Line()),
        )
        for fate, spare in (
            *((Fate.CUT, 5), (Fate.CUT, 190), (Fate.RESET, 60)),
            *((Fate.HALF_CLOSE, 60), (Fate.HALF_CLOSE, 190)),
        )
    ),
    *each(
        *(case, "garbled answers", ("unix", "http"), {"timeouts": {"call": 0.5}}),
        *(UP, answers_meet(Fate.GARBLE), SPOILT, Line(), SPOILT),
        Served("UpstreamUnavailable|UpstreamTimeout"),
    ),
)

TALK = (
    *each(
        *(same, "a call is cancelled", ("ws", "sse", "http"), None),
        *(Hold(3), Withdraw(), Took("notifications/cancelled", 3)),
    ),
    *each(
        *(same, "a client goes away", ("ws", "http"), None),
        *(CallFromAnother(), Took("notifications/cancelled")),
    ),
    *each(
        *(same, "never answers a call", ("unix", "http"), HASTY),
        *(Call("sleep", code="UpstreamTimeout"), Took("notifications/cancelled")),
    ),
    case(
        "never answers the listing",
        net("http", {"timeouts": {"list": 0.3}}, on={"tools/list": [NEVER]}),
        Reaches("degraded", reason="no answer to tools/list within 0.3 s"),
    ),
    *each(
        *(same, "other tools, announced", STREAMS, None),
        *(
            Lists(5),
            EpochRises(0),
            HasTools(["echo", "new"]),
            Lists(["echo", "new"]),
            EpochRises(1),
            Call("new"),
        ),
    ),
    *each(
        *(case, "other tools after it was away", ("unix", "sse"), None),
        *(UP, Lists(5), EpochRises(0), GoesAway(), HasTools(["echo"], announced=False), ComesBack()),
        *(AGAIN, Lists(["echo"]), EpochRises(1), Call()),
    ),
)

CASES = (*DOORS, *LINES, *TALK)
