"""What the tests of the metrics share: sources in which everything has happened once."""

from typing import Any

import attrs

from daemon.catalog.snapshot import Catalog
from daemon.counting.readings import Exporter
from daemon.counting.tally import (
    CODES,
    HTTP_REFUSALS,
    INVALIDATIONS,
    OK,
    OPERATOR,
    RELAYS,
    REPAIRS,
    REQUESTS,
    SOURCES,
    Tally,
)
from daemon.facts import DefinitionsListed, Fact
from daemon.kit.waiting import Watch
from daemon.model import Kind
from daemon.state.health import Condition, Persistence
from daemon.states import ServerState
from daemon.surfaces.table import SURFACES
from tests.tallies import new_tally
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status
from tests.unit.state.samples import definition

ON = {"metrics": {"enabled": True}}


@attrs.frozen(kw_only=True)
class FakeUpstream:
    """An upstream as far as it is counted."""

    name: str
    of: str
    children: dict[int, int] = attrs.field(factory=dict)
    in_flight: int = 0
    queued: int = 0


@attrs.frozen(kw_only=True)
class FakeInstances:
    """The instances of a server as far as they are counted."""

    begun: int = 0
    ended: int = 0


def catalog(**written: Any) -> Catalog:
    """`git` is up with two tools and one in quarantine, `time` has gone, `off` is switched off."""
    configured = {**servers("git", "time"), "off": {"command": "off", "enabled": False}}
    facts: list[Fact] = [
        status("git", restarts=2),
        listed("git", "log", "diff", quarantined={"bad": "no inputSchema"}),
        DefinitionsListed(
            server="git",
            incarnation=1,
            kind=Kind.PROMPT,
            definitions=(definition(Kind.PROMPT, "review"),),
            quarantined={"bad": "no name"},
        ),
        status("time"),
        listed("time", "now"),
        DefinitionsListed(
            server="time",
            incarnation=1,
            kind=Kind.RESOURCE,
            definitions=(
                definition(Kind.RESOURCE, "mem://1", "time"),
                definition(Kind.RESOURCE, "mem://2", "time"),
            ),
        ),
        status("time", ServerState.BACKOFF, restarts=5),
    ]
    return after(catalog_of({"mcpServers": configured, **ON, **written}), facts)


def eventful() -> Tally:
    """A tally in which everything that can be counted has happened."""
    tally = new_tally(["git", "time", "off"])
    for surface in (*SURFACES, OPERATOR):
        tally.call("git", surface, OK, [0.003])
        tally.call("gone", surface, "UpstreamLost", [30.0])
        tally.listed(surface, 1000, 5000)
        tally.spared(surface, 4000)
        tally.spared(surface, -100)
    for lazy in SURFACES.values():
        for tool in lazy.meta_tools:
            tally.meta_call(lazy.name, tool, OK)
    count_requests(tally)
    for code in CODES:
        tally.refused(code)
    for reason in HTTP_REFUSALS:
        tally.turned_away(reason)
    for kind in REPAIRS:
        tally.repaired(kind)
    for source in SOURCES:
        tally.loaded(source, 2)
        for hit in (True, True, False):
            tally.load(hit, source)
    for became in INVALIDATIONS:
        tally.invalidated(became)
    return tally


def count_requests(tally: Tally) -> None:
    """Count one of every kind, in both directions."""
    for method in REQUESTS:
        tally.request("git", method, OK)
        tally.request("gone", method, "UpstreamLost")
    for became in RELAYS:
        tally.relayed("git", "sampling/createMessage", became)


def exporter(tally: Tally | None = None, **changed: Any) -> Exporter:
    """An exporter of which every metric has a value."""
    given: dict[str, Any] = {
        "tally": eventful() if tally is None else tally,
        "catalog": Watch(catalog()),
        "actors": {
            "git": FakeUpstream(name="git", of="git", children={1: 77}, in_flight=5, queued=2),
            "time#3": FakeUpstream(name="time#3", of="time", children={1: 78}, in_flight=1),
            "time#7": FakeUpstream(name="time#7", of="time", children={1: 79}, in_flight=2, queued=1),
        },
        "divided": lambda: {"time": FakeInstances(begun=4, ended=2)},
        "sessions": lambda: [("load", 3), ("load", 1), ("full", 0)],
        "persistence": Watch(Persistence(state=Condition.OK, waiting=4)),
        "version": "1.2.3",
        "dropped": {"traces": 3, "logs": 1},
        "connections": lambda: {
            "clients": {"open": 3, "places": 1024, "refused": {"server": 2}},
            "operators": {"open": 1, "places": 32, "refused": {}},
        },
    }
    return Exporter(**{**given, **changed})
