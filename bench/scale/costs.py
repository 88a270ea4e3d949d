"""From measured points to what things cost.

A call passes the loop twice, as a request and as an answer. Each time a link is *visited*: the loop wakes for
it, reads it, and writes what came of it. That costs the same however many messages were read, and is most of a
small call. So

    CPU of a call = message + visit x (1 / requests per visit + 1 / answers per visit) + byte x bytes

One call at a time makes two visits; 32 in flight on one connection share theirs; of 32 clients at one server
each makes a visit of its own, while the server's answers share theirs. Three measured rows, two unknowns: least
squares of the relative errors. The other rows are not used: they tell whether the model is any good.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.scale.beside import Beside
    from bench.scale.points import Points

ALONE, LARGER, LARGE, LARGEST = (
    "one at a time, 100 B",
    "one at a time, 10 KB",
    "one at a time, 1 MB",
    "one at a time, 10 MB answers",
)
PIPELINED, FEW = "32 in flight, 100 B", "32 clients, 100 B"
SOCKET, CATEGORY = "socket", "category"

SHARED = 1 / 16
"""Visits for each of 32 messages in flight: at any moment half of them are at the other side."""

BYTES = ((LARGER, 2 * 10_000), (LARGE, 2 * 1_000_000), (LARGEST, 10_000_000))
"""Cases whose payload counts, and their bytes both ways."""

BIG_ANSWER = 10_000_000
"""Bytes of the large answer of `bench.calls`."""

LEAST_SLICE = 0.001
"""Seconds for which a large message keeps the loop at least, however little was measured: a few reads."""

LISTED = 5000
"""Tools of the list that `bench.calls` has read again."""


@attrs.frozen(kw_only=True)
class Costs:
    """Seconds of the loop, unless it says otherwise."""

    visit: float
    """To wake for a link, read it, and write what came of it."""
    message: float
    """A call beside its visits, on the surface `full`."""
    wrapper: float
    """What a call through `call-category-tool` costs beside that."""
    byte: float
    """Each byte of requests and answers."""
    slice: float
    """How long a large message keeps the loop without a pause."""
    search: float
    """What others wait for a search."""
    relist: float
    """What others wait for each tool of a list that is read again, and is the same."""
    changed: float
    """The same of a list of which a tenth has changed."""
    listing: float
    """What others wait for each tool of a list that is given to a client."""
    scrape: float
    """What others wait for a scrape of the metrics."""
    connection: float
    """A client that connects and shakes hands."""
    load: float
    """A load under a key, all threads together."""
    loads: float
    """Loads a second that the store took, of many sessions at once."""
    base_mb: float
    server_kb: float
    tool_kb: float
    client_kb: float
    """Of memory."""
    bridge_mb: float
    """Of memory that one `mcpd connect` has for itself."""
    ready: float
    """Seconds of a start, with 50 servers and 5,000 tools in the store."""

    @property
    def call(self) -> float:
        """A small call on `full` that shares its visits with none: the usual one of agents."""
        return self.message + 2 * self.visit

    @property
    def wrapped(self) -> float:
        """The same through `call-category-tool`."""
        return self.call + self.wrapper


def fitted(points: Points, beside: Beside) -> Costs:
    """What things cost.

    Raises:
        Unreadable: something was not measured.
    """
    message, visit = _message_and_visit(points)
    return Costs(
        visit=visit,
        message=message,
        wrapper=_micro([points.cpu(case, CATEGORY) - points.cpu(case, SOCKET) for case in (ALONE, PIPELINED)]),
        byte=_per_byte(points),
        slice=max(LEAST_SLICE, points.wait("a call with an answer of 10 MB") / 1e3),
        search=points.wait("a search") / 1e3,
        relist=points.wait("a list of 5,000 tools is read again, the same") / 1e3 / LISTED,
        changed=points.wait("a list of 5,000 tools is read again, a tenth is new") / 1e3 / LISTED,
        listing=points.wait("a list of 5,000 tools is given to a client") / 1e3 / LISTED,
        scrape=points.wait("a scrape of the metrics") / 1e3,
        connection=beside.connection_us / 1e6,
        load=beside.load_us / 1e6,
        loads=beside.loads,
        base_mb=beside.base_mb,
        server_kb=beside.server_kb,
        tool_kb=beside.tool_kb,
        client_kb=points.value("an idle client"),
        bridge_mb=points.value("mcpd connect: memory of its own"),
        ready=points.value("READY: ") / 1e3,
    )


def visits(case: str) -> float:
    """Visits of a call of one of the three cases that the fit is made from."""
    return {ALONE: 2.0, PIPELINED: 2 * SHARED, FEW: 1 + SHARED}[case]


def _message_and_visit(points: Points) -> tuple[float, float]:
    found = [(visits(case), points.cpu(case, SOCKET) / 1e6) for case in (ALONE, PIPELINED, FEW)]
    return line(found)


def line(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The straight line with the least relative errors; neither of its numbers is below zero.

    Args:
        found: pairs of x and measured y, y above zero.
    """
    one = sum(1 / y**2 for _, y in found)
    x1 = sum(x / y**2 for x, y in found)
    x2 = sum(x * x / y**2 for x, y in found)
    y1 = sum(1 / y for _, y in found)
    xy = sum(x / y for x, y in found)
    slope = (one * xy - x1 * y1) / (one * x2 - x1 * x1)
    start = (y1 - slope * x1) / one
    if start < 0:
        return 0.0, xy / x2
    return (start, slope) if slope > 0 else (y1 / one, 0.0)


def _per_byte(points: Points) -> float:
    small = points.cpu(ALONE, SOCKET)
    return _micro([(points.cpu(case, SOCKET) - small) / size for case, size in BYTES])


def _micro(values: Sequence[float]) -> float:
    return max(0.0, statistics.median(values)) / 1e6
