"""From a server's type to its transport."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import attrs
import pytest

from daemon.config.config_model import Server, TransportType
from daemon.processes.children import Children
from daemon.upstreams.transports.server_connection import MODULES, OpenContext, connector
from daemon.wire.outbox import Outbox
from tests.unit.upstreams.transports.listening import Listener


def context(kind: TransportType) -> OpenContext:
    server = Server(name="s", type=kind, command="no-such-command", url="http://127.0.0.1:1/")
    return OpenContext(server=server, events=Listener(), outbox=Outbox(), children=Children())


@pytest.mark.parametrize("kind", TransportType)
def test_every_type_has_a_transport_which_the_actor_can_open(kind: TransportType) -> None:
    module = importlib.import_module(MODULES[kind])
    assert list(inspect.signature(module.open_connection).parameters) == ["context"]


@pytest.mark.parametrize("kind", TransportType)
async def test_getting_a_connector_opens_nothing(kind: TransportType) -> None:
    """A command that does not exist is only missed once the context is entered."""
    opened = await connector(context(kind))
    assert hasattr(opened, "__aenter__")


def test_a_context_cannot_be_changed_by_the_transport_that_gets_it() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        context(TransportType.STDIO).server = Server(name="t", command="x")  # type: ignore[misc]


def test_a_context_keeps_secrets_out_of_its_repr() -> None:
    server = Server(name="s", command="x", env={"TOKEN": "canary"}, headers={"Authorization": "canary"})
    given = OpenContext(server=server, events=Listener(), outbox=Outbox(), children=Children())
    assert "canary" not in repr(given)


def test_the_libraries_of_a_network_are_not_imported_before_a_server_needs_them() -> None:
    """A daemon of stdio servers never pays for them, and none pays for the SDK: 38 MiB and a second."""
    code = (
        "import sys, daemon.tree.running; from daemon.upstreams.transports import server_connection, stdio;"
        "early = {'httpx2', 'wsproto'} & set(sys.modules);"
        "from daemon.upstreams.transports import http, sse, ws;"
        "sys.exit(bool(early or {'mcp', 'mcp_types', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
