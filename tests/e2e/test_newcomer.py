"""A newcomer's first servers: from a registry and bundles, with secrets elsewhere; no JSON is typed."""

import json
import os
import stat
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import NODE, Daemon, own_directory, started
from tests.registries import LocalRegistry, registry
from tests.terminals import Typing

TYPED, RUN, RING = "typed-83hd82hd8kq", "behind-9dk28dk2mx", "ringed-47fh37fhw1"
"""Secrets: one that is typed, one that a command prints, one in the keyring."""


def package(name: str, kind: str, identifier: str, version: str, **more: Any) -> dict[str, Any]:
    """The server.json of a server with one package."""
    packages = [
        {"registryType": kind, "identifier": identifier, "version": version, "transport": {"type": "stdio"}}
    ]
    packages[0] |= more
    return {
        "name": f"io.example/{name}",
        "description": f"The {name}",
        "version": version,
        "packages": packages,
    }


def variable(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Your {name}", **more}


OPEN = ("--sandbox", "off")
"""A sandbox has a /tmp of its own: the packages of these tests may lie there, with the whole checkout."""

HASH = "sha512-k8sh38sk2kq9="
NPM = {"everything": [], "memory": [], "filesystem": ["/usr/share"]}
DOCUMENTS = [
    *(
        package(
            name,
            "npm",
            f"@modelcontextprotocol/server-{name}",
            "1.2.3",
            packageArguments=[{"type": "positional", "value": value} for value in values],
        )
        for name, values in NPM.items()
    ),
    package("time", "pypi", "mcp-server-time", "2.0.1"),
    *(
        package(
            name,
            "npm",
            "@modelcontextprotocol/server-everything",
            "1.2.3",
            environmentVariables=[variable("API_TOKEN", isRequired=True, isSecret=True), variable("REGION")],
        )
        for name in ("weather", "tickets", "mail")
    ),
]

SERVER = """
let rest = "";
const say = (id, result) => process.stdout.write(JSON.stringify({jsonrpc: "2.0", id, result}) + "\\n");
process.stdin.on("data", data => {
  const lines = (rest + data).split("\\n");
  rest = lines.pop();
  for (const {id, method, params} of lines.map(JSON.parse)) {
    const text = JSON.stringify(process.argv.slice(2)), serverInfo = {name: "looking", version: "1"};
    if (method === "initialize")
      say(id, {protocolVersion: params.protocolVersion, capabilities: {tools: {}}, serverInfo});
    if (method === "tools/list") say(id, {tools: [{name: "look", inputSchema: {type: "object"}}]});
    if (method === "tools/call") say(id, {content: [{type: "text", text}]});
    if (method === "ping") say(id, {});
  }
});
"""


def bundle(at: Path, name: str) -> Path:
    """A bundle with a server for Node."""
    config = {"command": "node", "args": ["${__dirname}/server/index.js", "${user_config.place}"]}
    manifest = {
        "manifest_version": "0.3",
        "name": name,
        "version": "1.0.0",
        "description": "Looks",
        "author": {"name": "A"},
        "server": {"type": "node", "entry_point": "server/index.js", "mcp_config": config},
        "user_config": {
            "place": {"type": "string", "title": "Place", "description": "to look at", "default": "/srv"}
        },
    }
    with zipfile.ZipFile(at / f"{name}.mcpb", "w") as made:
        made.writestr("manifest.json", json.dumps(manifest))
        made.writestr("server/index.js", SERVER)
    return at / f"{name}.mcpb"


class Newcomer(Daemon):
    """Somebody with a home of their own, a registry, and `npx` and `uvx`, whose packages are there already."""

    def __init__(self, registry: LocalRegistry) -> None:
        super().__init__(own_directory(), {"registries": [registry.url]}, {})
        self.published, self.home = registry, self.directory / "home"
        (self.home / "bin").mkdir(parents=True)
        self.environ |= {
            "HOME": str(self.home),
            "MCPD_CONFIG": str(self.config),
            "PATH": f"{self.home}/bin:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(self.home / ".local/state"),
        }
        packages = f"{NODE}/@modelcontextprotocol/"
        self.program("bin/npx", f'#!/bin/bash\nexec node {packages}"${{2:22:-6}}"/dist/index.js "${{@:3}}"\n')
        for name in ("npm", "uv"):  # they are asked for the hashes of packages
            self.program(f"bin/{name}", f"#!/bin/sh\necho {HASH}\n")
        # A sandbox shows an interpreter in another home only where it is the command.
        (self.home / "bin" / "uvx").symlink_to(Path(sys.executable).resolve())
        run = f"import runpy, sys\nsys.path[:] = {sys.path}\n"
        run += "runpy.run_module('mcp_server_time', run_name='__main__')\n"
        self.program("mcp-server-time==2.0.1", run)

    def program(self, name: str, body: str) -> None:
        """A program at home."""
        (self.home / name).write_text(body)
        (self.home / name).chmod(0o755)

    def types(self, *words: str, answers: dict[str, str]) -> str:
        """Give a command, and answer its questions; returns what was said at its end."""
        with Typing(self, *words) as person:
            for question, answer in answers.items():
                person.until(question)
                person.write(answer)
            status, said = person.end()
        assert status == 0, said
        return said

    @property
    def entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = json.loads(self.config.read_text())["mcpServers"]
        return entries

    def has(self, server: str) -> str:
        """The API token that a server has."""
        environ: dict[str, str] = json.loads(
            json.loads(self.run("call", f"{server}/get-env", "--json", "--as-operator"))["content"][0]["text"]
        )
        return environ["API_TOKEN"]


@pytest.fixture
def newcomer() -> Iterator[Newcomer]:
    with registry(DOCUMENTS) as published:
        made = Newcomer(published)
        with started(made):
            yield made


def test_a_newcomer_adds_servers_from_a_registry_and_bundles_and_no_secret_lies_open(
    newcomer: Newcomer,
) -> None:
    vault = newcomer.home / "vault"
    vault.write_text(RUN)
    vault.chmod(0o600)
    approve = {"Approve?": ""}
    for name in (*NPM, "time"):
        words = ("add", f"registry:io.example/{name}", *OPEN, "--yes")
        said = newcomer.types(*words, answers=approve)
        assert f"approved {name}/" in said
    # It is the same package as before, which is approved.
    typed = {"API_TOKEN: ": TYPED, "REGION": "eu", "Add it as weather?": ""}
    newcomer.types("add", "registry:io.example/weather", *OPEN, answers=typed)
    run = ("--env", f"API_TOKEN=${{run:cat {vault}}}", "--yes")
    newcomer.types("add", "registry:io.example/tickets", *OPEN, *run, answers={})
    newcomer.types(
        "add", "registry:io.example/mail", *OPEN, "--keyring", "--yes", answers={"API_TOKEN: ": RING}
    )
    for name in ("look", "peer"):
        newcomer.types("add", str(bundle(newcomer.directory, name)), "--yes", answers=approve)

    servers = newcomer.ask("status")["servers"]
    assert len(servers) == len(DOCUMENTS) + 2
    assert {each["state"] for each in servers.values()} == {"ready", "dormant"}
    assert not any(each["held"] for each in servers.values())
    assert {each.get("trust") for each in newcomer.entries.values()} == {"none"}
    boxes = {name: each.get("sandbox") for name, each in newcomer.entries.items()}
    assert {name for name, box in boxes.items() if box == "home"} == {"look", "peer"}
    assert newcomer.entries["time"]["args"] == ["mcp-server-time==2.0.1"]
    assert newcomer.entries["time"]["origin"]["hash"] == HASH
    assert newcomer.entries["weather"]["env"] == {"API_TOKEN": "${WEATHER__API_TOKEN}", "REGION": "eu"}
    assert newcomer.entries["mail"]["env"] == {"API_TOKEN": "${keyring:MAIL__API_TOKEN}"}
    assert [newcomer.has(each) for each in ("weather", "tickets", "mail")] == [TYPED, RUN, RING]
    assert "/srv" in newcomer.run("call", "look/look", "--as-operator")

    found = {secret: [*files_with(secret, newcomer.directory)] for secret in (TYPED, RUN, RING)}
    assert [[*map(stat.S_IMODE, (path.stat().st_mode for path in paths))] for paths in found.values()] == [
        [0o600]
    ] * 3
    assert not [secret for secret in found if secret in newcomer.config.read_text()]

    unpacked = Path(newcomer.entries["look"]["origin"]["bundle"])
    assert unpacked.is_dir()
    newcomer.run("remove", "look")
    assert not unpacked.exists()


def test_what_a_client_has_of_a_registry_is_imported_as_that_server(newcomer: Newcomer) -> None:
    """Kiro's entries, of which the last is published nowhere."""
    servers = {f"io.example/{name}": {"type": "registry"} for name in ("memory", "weather", "gone")}
    file = newcomer.home / ".kiro/settings/mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"mcpServers": servers}))
    said = newcomer.run("import", "--from", "kiro", "--write", "--yes")
    assert "`mcpd add registry:io.example/gone` adds it" in " ".join(said.split())
    memory, weather = (newcomer.entries[f"io-example-{name}"] for name in ("memory", "weather"))
    assert (memory["command"], memory["args"]) == ("npx", ["-y", "@modelcontextprotocol/server-memory@1.2.3"])
    assert (memory["origin"]["version"], memory["trust"], memory["sandbox"]) == ("1.2.3", "none", "home")
    assert "hash" not in memory["origin"]
    # No document chooses among the variables that are there for something else.
    assert weather["env"] == {"API_TOKEN": "${MCP_WEATHER_API_TOKEN}"}


def test_what_was_seen_is_added_offline_and_nothing_of_a_registry_that_lies(newcomer: Newcomer) -> None:
    words = ("add", "registry:io.example/memory", "--no-reload", "--yes")
    assert newcomer.outcome(*words, "--offline").returncode == 1
    assert newcomer.outcome(*words, "--dry-run").returncode == 0
    newcomer.published.hostile = "other_server"
    before = newcomer.config.read_text()
    done = newcomer.outcome(*words)
    assert (done.returncode, newcomer.config.read_text()) == (1, before), done.stderr
    assert "no server io.example/memory" in done.stderr
    assert newcomer.outcome(*words, "--offline").returncode == 0
    newcomer.environ["PATH"] = f"{newcomer.home}/bin"
    done = newcomer.outcome(*words, "--offline", "--replace")
    assert (done.returncode, "apt install bubblewrap" in done.stderr, "`--sandbox off`" in done.stderr) == (
        1,
        True,
        True,
    )


def files_with(secret: str, below: Path) -> Iterator[Path]:
    for path in below.rglob("*"):
        if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes():
            yield path
