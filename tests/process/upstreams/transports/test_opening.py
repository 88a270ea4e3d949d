"""From a server's type to its transport."""

from __future__ import annotations

import subprocess
import sys

from daemon.config.config_model import Server
from daemon.processes.children import Children
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.wire.outbox import Outbox
from tests.unit.upstreams.transports.listening import Listener


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
