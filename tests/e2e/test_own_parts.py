"""The examples of docs/operators.md, transports.md and surfaces.md, added to mcpd as the pages say."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon.cli.control import RemoteFault
from tests.e2e.harness import ROOT, Daemon, running, scripted
from tests.waiting import eventually

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


def page(name: str) -> tuple[list[str], list[str]]:
    """A page's files, and the lines that are to be added elsewhere."""
    text = (ROOT / "docs" / name).read_text()
    files, lines = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "text"))
    return files, lines


def insert(path: Path, before: str, line: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, line + before))


def add_row(path: Path, table: str, row: str) -> None:
    text = path.read_text()
    end = text.index("\n}\n", text.index(f"\n{table}: ")) + 1
    path.write_text(text[:end] + row + text[end:])


def add_command(package: Path) -> None:
    """Two files, their lines in the tables, its words, and an import."""
    (command, cli), (line, cli_module, words) = page("operators.md")
    table = package / "operators" / "command_table.py"
    (package / "operators" / "epochs.py").write_text(command)
    insert(table, "    *(event_commands, ", line)
    insert(table, "    event_commands,\n", "    epochs,\n")
    (package / "cli" / "epochs.py").write_text(cli)
    insert(package / "cli" / "table.py", '    "read": ', cli_module)
    help_texts = package / "cli" / "help.toml"
    grouped = help_texts.read_text().replace('look = "', 'look = "epochs ', 1)
    help_texts.write_text(grouped + words)


def add_transport(package: Path) -> None:
    """A file, and three lines."""
    (file,), (member, scheme, meaningless) = page("transports.md")
    (package / "upstreams" / "transports" / "tcp.py").write_text(file)
    insert(package / "config" / "config_model.py", "\n\nLOGIN_TYPES = ", member)
    add_row(package / "config" / "validate.py", "SCHEMES", scheme)
    add_row(package / "config" / "validate.py", "_MEANINGLESS", meaningless)


def add_surface(package: Path) -> None:
    """A file, a line, and its import."""
    (*_, file), (line,) = page("surfaces.md")
    (package / "surfaces" / "names.py").write_text(file)
    table = package / "surfaces" / "table.py"
    text, last = table.read_text(), "        FullSurface(),\n"
    assert text.count(last) == 1
    table.write_text(text.replace(last, last + line))
    imports = "from daemon.surfaces.full import FullSurface, ItselfSurface\n"
    insert(table, imports, "from daemon.surfaces.names import NamesSurface\n")


@contextmanager
def listening() -> Iterator[int]:
    """A server on a TCP port."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield int(child.stdout.readline())
        finally:
            child.kill()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon of a copy of the package to which all examples were added."""
    code = tmp_path_factory.mktemp("code")
    shutil.copytree(ROOT / "daemon", code / "daemon")
    for add in (add_command, add_transport, add_surface):
        add(code / "daemon")
    with listening() as port:
        servers: dict[str, Any] = {
            "s": scripted(tools=["echo"]),
            "far": {"type": "tcp", "url": f"tcp://127.0.0.1:{port}"},
            "nobody": {"type": "tcp", "url": "tcp://127.0.0.1:1"},
        }
        profiles = {"default": {"surface": "full"}, "names": {"surface": "names"}}
        with running({"mcpServers": servers, "profiles": profiles}, code=code) as daemon:
            daemon.ready("s", "far")
            yield daemon


def test_the_command_of_the_page_is_answered(daemon: Daemon) -> None:
    assert daemon.ask("epochs", server="s") == {"s": 1}
    with pytest.raises(RemoteFault, match="Did you mean far"):
        daemon.ask("epochs", server="faar")
    assert json.loads(daemon.run("epochs")) == daemon.ask("epochs")
    assert "only this one" in daemon.run("epochs", "--help")


def test_the_transport_of_the_page_reaches_servers_and_tells_why_not(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert client.call("shout", {"text": "hear me"})["content"][0]["text"] == "HEAR ME"
    assert eventually(lambda: daemon.ask("status")["servers"]["nobody"]["cause"]) == "refused"
    assert '"tcp"' in daemon.run("schema")


def test_the_surface_of_the_page_serves_clients(daemon: Daemon) -> None:
    with daemon.client().hello(profile="names") as client:
        assert client.listed() == ["tool_names"]
        assert {"echo", "shout"} <= set(client.call("tool_names", {})["structuredContent"]["names"])
        assert json.loads(client.call("echo", {"a": 1})["content"][0]["text"]) == {"a": 1}
