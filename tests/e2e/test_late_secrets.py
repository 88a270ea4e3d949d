"""Secrets that commands print, in a real daemon: a server's environment, and a token that changes."""

import json
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.e2e.harness import Daemon, RawClient, running, scripted
from tests.pages import Page, at_work
from tests.waiting import eventually

FIRST, SECOND, PLAIN = "tok-7fK2mQ9xVb4Z-first", "tok-Zq81LmP0sWcE-second", "pelican meadow"


class TokenServer(ThreadingHTTPServer):
    """An MCP server over HTTP that lets in who shows its present token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Guarded)
        self.token = FIRST
        self.shown: list[tuple[str, str]] = []
        """The method and the token of each request."""

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}/mcp"

    def calls(self) -> int:
        """How many calls it has run."""
        return sum(method == "tools/call" and token == self.token for method, token in self.shown)


class Guarded(Page):
    """Answers as a server of 2025-11-25 with one tool."""

    server: TokenServer

    def do_POST(self) -> None:
        """Answer, or refuse."""
        asked = json.loads(self.body())
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        self.server.shown.append((asked["method"], token))
        if token != self.server.token:
            self.say(status=401)
        elif "id" not in asked:
            self.say(status=202)
        else:
            result = {"jsonrpc": "2.0", "id": asked["id"], "result": self._result(asked["method"])}
            self.say(json.dumps(result).encode())

    def _result(self, method: str) -> dict[str, Any]:
        named = {"serverInfo": {"name": "guarded", "version": "1"}, "protocolVersion": "2025-11-25"}
        answers: dict[str, dict[str, Any]] = {
            "initialize": {**named, "capabilities": {"tools": {}}},
            "tools/list": {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": f"you show {self.server.token}"}]},
        }
        return answers.get(method, {})

    def do_GET(self) -> None:
        """There is no stream."""
        self.say(status=405)

    do_DELETE = do_GET


class Vault:
    """A command that prints a value, and counts how often it was asked."""

    def __init__(self, directory: Path, value: str) -> None:
        self.value, self._runs = directory / "value", directory / "runs"
        self._program = directory / "vault"
        self._program.write_text('#!/bin/sh\necho run >>"$1/runs"\nexec cat "$1/value"\n')
        self._program.chmod(0o700)
        self.put(value)

    @property
    def reference(self) -> str:
        """What an entry says."""
        return f"${{run:{self._program} '{self._program.parent}'}}"

    def put(self, value: str) -> None:
        """Have it print another value from now on."""
        self.value.write_text(f"{value}\n")

    def runs(self) -> int:
        """How often it ran."""
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0


def test_a_server_gets_what_a_command_prints_and_nobody_is_shown_the_value(tmp_path: Path) -> None:
    # Neither the value nor the names look like a secret's.
    vault = Vault(tmp_path, PLAIN)
    env = {"PLACE": vault.reference, "GREETING": f"Dear {vault.reference}"}
    server = scripted(tools=["env"])
    tells = ["-c", 'echo "it shows $PLACE" >&2; exec "$0" "$@"', server["command"], *server["args"]]
    entry = {"command": "sh", "args": tells, "env": env}
    with running({"mcpServers": {"s": entry}}, level="DEBUG") as daemon, daemon.client() as client:
        daemon.ready()
        client.greet()
        found = client.run("s", "env")["content"][0]["text"]
        seen = json.loads(found)
        assert (seen["PLACE"], seen["GREETING"]) == (PLAIN, f"Dear {PLAIN}")
        assert vault.runs() == 1, "twice in an entry, once in a run"
        checked = daemon.outcome("check", "--config", str(daemon.config))
        assert f"`{vault.reference[6:-1]}` runs each time that the server starts, and not now" in checked.stderr
        assert vault.runs() == 1
        daemon.run("restart", "s")
        daemon.ready()
        assert vault.runs() == 2
        shown = json.dumps([daemon.status(), daemon.ask("events"), daemon.ask("logs", server="s")])
        daemon.run("doctor", check=None)
        assert vault.runs() == 2
        kept = b"".join(path.read_bytes() for path in daemon.state.parent.rglob("*") if path.is_file())
        assert "it shows [redacted]" in shown
        assert PLAIN not in shown + daemon.said()
        assert PLAIN.encode() not in kept
        assert "\\u0000" not in shown


def test_a_token_that_has_changed_is_looked_up_again_and_no_call_is_repeated(tmp_path: Path) -> None:
    vault = Vault(tmp_path, FIRST)
    with at_work(TokenServer()) as server:
        entry = {"url": server.url, "headers": {"Authorization": f"Bearer {vault.reference}"}}
        with running({"mcpServers": {"s": entry}}) as daemon, daemon.client() as client:
            daemon.ready()
            client.greet()
            assert client.run("s", "whoami")["content"][0]["text"] == f"you show {FIRST}"
            server.token = SECOND
            vault.put(SECOND)
            refused = client.run("s", "whoami")
            assert "The call was not run" in json.dumps(refused)
            assert server.calls() == 0
            assert eventually(lambda: _worked(client), daemon.said) == f"you show {SECOND}"
            assert (server.calls(), vault.runs()) == (1, 2)
            assert daemon.ready()["s"]["restarts"] == 1
            shown = daemon.said() + json.dumps(daemon.status())
            assert [token for token in (FIRST, SECOND) if token in shown] == []


def _in_state(daemon: Daemon, state: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        server: dict[str, Any] = daemon.ask("status")["servers"]["s"]
        return server if server["state"] == state else {}

    return eventually(look, daemon.said)


def _worked(client: RawClient) -> str:
    result = client.run("s", "whoami")
    text: str = result["content"][0]["text"]
    return "" if result.get("isError") else text


def test_a_token_that_is_refused_and_has_not_changed_waits_for_an_operator(tmp_path: Path) -> None:
    vault = Vault(tmp_path, SECOND)
    with at_work(TokenServer()) as server:
        entry = {"url": server.url, "headers": {"Authorization": f"Bearer {vault.reference}"}}
        with running({"mcpServers": {"s": entry}}) as daemon:
            found = eventually(
                lambda: (it := daemon.ask("status")["servers"]["s"])["state"] == "needs_auth" and it,
                daemon.said,
            )
            assert (found["cause"], found["restarts"]) == ("unauthorized", 1)
            assert vault.runs() == 2
            vault.put(FIRST)
            daemon.run("restart", "s")
            daemon.ready()
            assert vault.runs() == 3


def test_a_command_that_fails_is_named_with_its_last_words_but_without_the_secret(tmp_path: Path) -> None:
    program = tmp_path / "locked"
    program.write_text(f"#!/bin/sh\nprintf {FIRST}\necho the vault is locked, not {FIRST} >&2\nexit 3\n")
    program.chmod(0o700)
    entry = {**scripted(tools=["echo"]), "env": {"TOKEN": f"${{run:{program} item/field}}"}}
    with running({"mcpServers": {"s": entry}}) as daemon:
        found = _in_state(daemon, "failed")
        said = f"`{program} item/field` failed with exit status 3: the vault is locked, not [redacted]"
        assert (found["cause"], found["reason"]) == ("secret-unavailable", said)
        assert "mcpd restart s" in found["helps"]
        program.write_text(f"#!/bin/sh\nprintf {FIRST}\n")
        daemon.run("restart", "s")
        daemon.ready()
        assert FIRST not in daemon.said() + json.dumps(daemon.status())


def test_instances_and_a_second_connection_get_the_same_value_from_one_run(tmp_path: Path) -> None:
    vault = Vault(tmp_path, FIRST)
    entry = {**scripted(tools=["env"], era="both"), "env": {"TOKEN": vault.reference}, "share": "session"}
    with running({"mcpServers": {"s": entry}}) as daemon, daemon.client() as one, daemon.client() as other:
        eventually(lambda: "it has listed" in daemon.said(), daemon.said)
        for number, client in enumerate((one, other)):
            client.hello(session=f"session-{number}").greet()
            assert json.loads(client.run("s", "env")["content"][0]["text"])["TOKEN"] == FIRST
        assert daemon.said().count("started a second time") == 2
        assert vault.runs() == 2, "once for the listing, once for both"
