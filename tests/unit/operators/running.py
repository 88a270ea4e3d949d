"""A registry and a supervisor at work, for commands that change something and wait for its effect."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import trio
from msgspec import Raw

from daemon.actors.registry import Registry
from daemon.catalog.listing import read_definitions
from daemon.config.parse import Plan
from daemon.config.redaction import Redactors
from daemon.config.tuning import Restart
from daemon.facts import DefinitionsListed, StatusChanged
from daemon.model import Kind
from daemon.operators.base import ServerOrAll
from daemon.operators.server_changes import SwitchParams, refresh, switch
from daemon.supervision.lifecycle import ChildSpec
from daemon.supervision.supervisor import Supervisor
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import FACTS, FakeArchive, FakeServer, operator_context
from tests.waiting import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from daemon.facts import ServerStatus
    from daemon.supervision.lifecycle import Lifecycle

CONFIG = {
    "mcpServers": {
        "git": {"command": "git"},
        "time": {"command": "time"},
        "off": {"command": "off", "enabled": False},
    },
    "categories": {"c": {"server": "git", "tools": {"overrides": {"push": {"enabled": False}}}}},
}


def raw(name: str, **more: Any) -> Raw:
    return Raw(json.dumps({"name": name, "inputSchema": {"type": "object"}, **more}).encode())


class ListingServer(FakeServer):
    """A server that lists these tools when it is told to."""

    def __init__(self, name: str, daemon: Running) -> None:
        super().__init__(name)
        self.lists: tuple[Raw, ...] = ()
        self.on_refresh = lambda: daemon.list(name, *self.lists)


class Running:
    """The daemon of `CONFIG`; its servers list what the test says."""

    def __init__(self) -> None:
        config = config_of(CONFIG)
        self.registry = Registry(config, wall=time.time)
        self.supervisor = Supervisor(
            [ChildSpec(name=name, run=_live, policy=Restart()) for name in ("git", "time")],
            starts=4,
            on_status=self._on_status,
            rng=lambda: 0.5,
            wall=time.time,
        )
        self.servers = {name: ListingServer(name, self) for name in ("git", "time")}
        for name, server in self.servers.items():
            server.child = self.supervisor.children[name]
        self.archive = FakeArchive()
        self.plan = Plan(restarted=("git",), kept=("time",))
        self.context = operator_context(
            Stage(config),
            facts=attrs.evolve(FACTS, config="/etc/mcpd.json"),
            registry=self.registry,
            upstreams=self.servers,
            children=self.supervisor.children,
            reload=self._reload,
            archive=self.archive,
            redact=Redactors(["s3cret"]),
        )

    async def _reload(self) -> Plan:
        await trio.lowlevel.checkpoint()
        return self.plan

    def _on_status(self, name: str, status: ServerStatus) -> None:
        self.registry.tell(StatusChanged(server=name, status=status))

    def list(self, server: str, *raws: Raw) -> None:
        """A server lists these tools."""
        tools, _ = read_definitions(Kind.TOOL, server, list(raws))
        self.registry.tell(DefinitionsListed(kind=Kind.TOOL, server=server, incarnation=1, definitions=tools))

    @property
    def switched(self) -> frozenset[tuple[str, str]]:
        """What operators have switched off."""
        return self.registry.catalog.value.switched

    async def switch(self, name: str, *, off: bool) -> dict[str, object]:
        """`mcpd disable` or `mcpd enable`."""
        return await switch(self.context, SwitchParams(name, off))

    async def refresh(self, server: str | None) -> Any:
        """`mcpd refresh`."""
        return await refresh(self.context, ServerOrAll(server))

    async def follow(self) -> None:
        """What `servers` does: children in line with the catalog."""
        catalog = self.registry.catalog.value
        while True:
            catalog = await self.registry.catalog.wait_changed(catalog)
            for name, child in self.supervisor.children.items():
                if (name, "") in catalog.switched:
                    child.switch_off("switched off by an operator")
                else:
                    child.switch_on()


async def _live(lifecycle: Lifecycle) -> None:
    lifecycle.ready()
    await trio.sleep_forever()


@asynccontextmanager
async def running(*, following: bool = True, patience: float = 30) -> AsyncIterator[Running]:
    """Everything at work: `git` has listed three tools, `time` none."""
    made = Running()
    async with beside(made.registry.run) as nursery:
        nursery.start_soon(made.supervisor.run)
        if following:
            nursery.start_soon(made.follow)
        made.list("git", raw("log"), raw("push"), raw("a/b"))
        with trio.fail_after(patience):
            for child in made.supervisor.children.values():
                assert await child.status.wait_settled()
            await made.registry.settle()
            yield made
