"""Approving what is held."""

from pathlib import Path

import pytest

from daemon.actors.registry import Registry
from daemon.errors import CannotApprove
from daemon.facts import Approved
from daemon.history.event import Event, EventKind
from daemon.setup.approving import Approver
from tests.unit.catalog.samples import listed, servers, tool
from tests.unit.config.reading import config_of
from tests.waiting import beside

LOG, SEND = tool("a", "log"), tool("b", "send")


async def test_before_the_store_was_read_nothing_is_approved_and_no_other_server_begins_anew(
    tmp_path: Path,
) -> None:
    registry = Registry(config_of({"trust": "changes", "mcpServers": servers("a", "b")}), wall=lambda: 5.0)
    events: list[Event] = []
    approver = Approver(
        catalog=registry.catalog,
        tell=registry.tell,
        settle=registry.settle,
        note=events.append,
        wall=lambda: 5.0,
        directory=tmp_path,
    )
    async with beside(registry.run):
        for fact in (listed("a", LOG), listed("b", SEND)):
            registry.tell(fact)
        await registry.settle()
        with pytest.raises(CannotApprove, match=r"before mcpd has read the store.*mcpd status"):
            await approver.approve([LOG], "olga")
        assert registry.catalog.value.held(("b", "send"))
        assert not events
        registry.tell(Approved())
        registry.tell(listed("a", tool("a", "log", description="Deletes commits.")))
        await registry.settle()
        held = registry.catalog.value.held(("a", "log"))
        assert held is not None
        assert await approver.approve([held.definition], "olga") == [held.definition]
        assert registry.catalog.value.held(("a", "log")) is None
        assert [event.kind for event in events] == [EventKind.APPROVED]
