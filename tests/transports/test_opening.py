"""From a server's type to its transport."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

from daemon.config.model import Server, TransportType
from daemon.transports.children import Children
from daemon.transports.context import OpenContext
from daemon.transports.opening import MODULES, connector
from daemon.wire.outbox import Outbox
from tests.transports.listening import Listener


def context(kind: TransportType) -> OpenContext:
    server = Server(name="s", type=kind, command="no-such-command", url="http://127.0.0.1:1/")
    return OpenContext(server=server, events=Listener(), outbox=Outbox(), children=Children())


def test_every_type_that_a_configuration_may_name_has_a_transport() -> None:
    assert set(MODULES) == set(TransportType)


@pytest.mark.parametrize("kind", sorted(MODULES))
def test_every_transport_has_the_door_that_the_actor_uses(kind: str) -> None:
    module = importlib.import_module(MODULES[kind])
    assert list(inspect.signature(module.open_connection).parameters) == ["context"]


@pytest.mark.parametrize("kind", TransportType)
async def test_getting_a_connector_opens_nothing(kind: TransportType) -> None:
    """A command that does not exist is only missed once the context is entered."""
    opened = await connector(context(kind))
    assert hasattr(opened, "__aenter__")


def test_the_sdk_is_not_imported_before_a_server_needs_it() -> None:
    """It costs 0.6 s and 63 MiB, which a daemon of stdio servers never pays."""
    code = (
        "import sys, daemon.tree, daemon.transports.stdio, daemon.transports.opening;"
        "sys.exit('mcp' in sys.modules or 'pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_transports_that_share_the_sdk_may_be_opened_at_the_same_moment() -> None:
    """Fresh interpreters: two threads that met in the SDK's circular imports deadlocked each other."""
    code = """
import trio
from daemon.transports.opening import load

async def main():
    async with trio.open_nursery() as nursery:
        for name in ("http", "sse", "ws", "http", "sse"):
            nursery.start_soon(trio.to_thread.run_sync, load, f"daemon.transports.{name}")

trio.run(main)
"""
    for _ in range(3):
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
