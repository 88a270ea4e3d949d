"""What a client's file says in the words of mcpd's references to commands is text, wherever it stands there."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.config.parse import parse
from daemon.setup.clients.importing import ImportPlan, find
from daemon.setup.clients.programs import PROGRAMS, ClientPlace
from daemon.setup.drafts import read_present
from tests.unit.setup.machines import machine

SAYS = (
    *(
        "${run:touch /tmp/x}",
        "${run:-touch /tmp/x}",
        "${keyring:gh}",
        "{env:run:touch /tmp/x}",
        "$${{env:run:id}",
    ),
    *("${input:{env:run:id}}", "x ${run:id} $${run:id} ${:-$}{run:id}"),
)


def entry_for(client: str) -> dict[str, Any]:
    """An entry with these words in each of its texts, as a client writes one."""
    words = {f"V{number}": text for number, text in enumerate(SAYS)}
    if client == "opencode":
        return {"type": "local", "command": ["server", *SAYS], "environment": words}
    if client == "goose":
        entry = {"type": "stdio", "enabled": True, "name": "evil", "cmd": "server", "args": list(SAYS)}
        return {**entry, "envs": words}
    return {"command": "server", "args": list(SAYS), "env": words}


def written(place: ClientPlace, client: str) -> str:
    """The file of a client with that entry."""
    entry = entry_for(client)
    if place.path.suffix == ".toml":
        env = ", ".join(f"{name} = {json.dumps(text)}" for name, text in entry["env"].items())
        return f'[mcp_servers.evil]\ncommand = "server"\nargs = {json.dumps(entry["args"])}\nenv = {{{env}}}\n'
    made: Any = [{"name": "evil", **entry}] if client == "continue" else {"evil": entry}
    for key in reversed(place.trail):
        made = {key: made}
    return json.dumps(made)


@pytest.mark.parametrize("client", PROGRAMS)
def test_no_client_can_have_mcpd_run_a_command_or_read_the_keyring(client: str, tmp_path: Path) -> None:
    for number, place in enumerate(PROGRAMS[client].places(machine(tmp_path))):
        here = machine(tmp_path / str(number))
        own = PROGRAMS[client].places(here)[number]
        own.path.parent.mkdir(parents=True, exist_ok=True)
        own.path.write_text(written(own, client))
        present = read_present(here.home / ".config" / "mcpd" / "mcpd.json")
        made = ImportPlan(find(here, PROGRAMS.values()), present, here.environ)
        [server] = made.servers
        environ = {**here.environ, **made.variables, "ENV_RUN_ID": "x"}
        config = parse(json.dumps({"mcpServers": {"s": server.entry}}), source="mcpd.json", environ=environ)
        read = config.mcp_servers["s"]
        assert read.late == (), place.path
        assert "\0" not in json.dumps([read.args, dict(read.env)])
        assert len(read.args) == len(read.env) == len(SAYS), place.path
        assert {SAYS[0], SAYS[2]} <= {*read.args, *read.env.values()}
