"""The metrics of what runs: of servers that all clients share, and of the instances of the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.ports import Instances

Labels = tuple[str, ...]
"""Values of a metric's labels, in the order of the table."""


class Distribution(msgspec.Struct, frozen=True):
    """The value of a histogram."""

    buckets: tuple[int, ...]
    """How many values fell between two of `counting.tally.LATENCY_BOUNDS`; the last: beyond all."""
    total: float
    """The sum of what was observed."""


Values = dict[Labels, float | Distribution]


class CountedUpstream(Protocol):
    """The countable part of what runs of a server: the server itself, or an instance of it."""

    name: str
    """Its own name."""
    of: str
    """The name of the server."""
    children: dict[int, int]
    """The marks of its processes, by pid."""

    @property
    def in_flight(self) -> int:
        """Calls without an answer yet, queued ones included."""

    @property
    def queued(self) -> int:
        """Calls that wait in the queue."""


class CountedServer(Protocol):
    """A server, which may have instances."""

    @property
    def instances(self) -> Instances | None:
        """Its instances; None if all clients share one."""


def running(actors: Iterable[CountedUpstream]) -> dict[str, Values]:
    """Calls by server, those of its instances together."""
    in_flight: Counter[Labels] = Counter()
    queued: Counter[Labels] = Counter()
    for each in actors:
        in_flight[each.of,] += each.in_flight
        queued[each.of,] += each.queued
    return {"mcpd_server_calls_in_flight": dict(in_flight), "mcpd_server_calls_queued": dict(queued)}


def instances(divided: Mapping[str, Instances], actors: Iterable[CountedUpstream]) -> dict[str, Values]:
    """Servers whose clients do not share one; an instance has its series as long as it lives."""
    live = [each for each in actors if each.of in divided and each.name != each.of]
    return {
        "mcpd_server_instances": {(name,): sum(each.of == name for each in live) for name in divided},
        "mcpd_server_instances_begun_total": {(name,): each.begun for name, each in divided.items()},
        "mcpd_server_instances_ended_total": {(name,): each.ended for name, each in divided.items()},
        "mcpd_instance_calls_in_flight": {labels_of(each): each.in_flight for each in live},
        "mcpd_instance_calls_queued": {labels_of(each): each.queued for each in live},
    }


def memory(marks: Mapping[int, Labels], resident: Mapping[int, int]) -> dict[str, Values]:
    """Resident memory by server, and by instance.

    Args:
        marks: what runs, by the mark of its processes.
        resident: bytes by mark.
    """
    used: Counter[Labels] = Counter()
    of_instances: Counter[Labels] = Counter()
    for mark, labels in marks.items():
        if mark in resident:
            used[labels[:1]] += resident[mark]
            if len(labels) > 1:
                of_instances[labels] += resident[mark]
    return {"mcpd_server_memory_bytes": dict(used), "mcpd_instance_memory_bytes": dict(of_instances)}


def labels_of(actor: CountedUpstream) -> Labels:
    """The labels of what runs: its server, and the instance where it is one."""
    return (actor.of,) if actor.name == actor.of else (actor.of, actor.name)
