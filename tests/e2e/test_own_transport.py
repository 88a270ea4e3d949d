"""The example of docs/transports.md, taken from there: a further transport is one file and three lines."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness import ROOT, running
from tests.e2e.test_own_command import insert
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

LAST_TYPE = "\n\nLOGIN_TYPES = "

SERVER = """
import json, socketserver

TOOL = {"name": "shout", "inputSchema": {"type": "object"}}

def answer(method, params):
    if method == "initialize":
        info = {"name": "tcp", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["arguments"]["text"].upper()}]}
    return {}

class Lines(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            message = json.loads(line)
            if "id" in message:
                result = answer(message["method"], message.get("params"))
                told = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                if message["method"] == "server/discover":
                    told = {**told, "error": {"code": -32601, "message": "Method not found"}}
                    del told["result"]
                self.wfile.write(json.dumps(told).encode() + b"\\n")

with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Lines) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
"""


def add_row(path: Path, table: str, row: str) -> None:
    text = path.read_text()
    end = text.index("\n}\n", text.index(f"\n{table}: ")) + 1
    path.write_text(text[:end] + row + text[end:])


def with_the_example(place: Path) -> Path:
    """A copy of the package with what the page says: a file, and three lines."""
    page = (ROOT / "docs" / "transports.md").read_text()
    (file,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    member, scheme, meaningless = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    shutil.copytree(ROOT / "daemon", place / "daemon", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "daemon" / "upstreams" / "transports" / "tcp.py").write_text(file)
    insert(place / "daemon" / "config" / "config_model.py", LAST_TYPE, member)
    rules = place / "daemon" / "config" / "validate.py"
    add_row(rules, "SCHEMES", scheme)
    add_row(rules, "_MEANINGLESS", meaningless)
    return place


@contextmanager
def listening() -> Iterator[int]:
    """A server on a TCP port."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield int(child.stdout.readline())
        finally:
            child.kill()


def test_the_example_of_the_page_reaches_servers_when_it_is_added_as_the_page_says(tmp_path: Path) -> None:
    with listening() as port:
        entry = {"type": "tcp", "url": f"tcp://127.0.0.1:{port}"}
        config = {"mcpServers": {"far": entry}, "profiles": {"default": {"surface": "full"}}}
        with running(config, code=with_the_example(tmp_path)) as daemon, daemon.client() as client:
            daemon.ready()
            assert client.call("shout", {"text": "hear me"})["content"][0]["text"] == "HEAR ME"
            assert '"tcp"' in daemon.run("schema")


def test_a_port_where_nobody_listens_is_told_with_its_cause(tmp_path: Path) -> None:
    config = {"mcpServers": {"far": {"type": "tcp", "url": "tcp://127.0.0.1:1"}}}
    with running(config, code=with_the_example(tmp_path)) as daemon:
        assert eventually(lambda: daemon.status()["servers"]["far"]["cause"]) == "refused"
