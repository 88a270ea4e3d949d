"""Tokens of a real daemon: made, used, listed and revoked while it runs, as `mcpd token` does it."""

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from typing import Any

import pytest

from tests.e2e.harness import INITIALIZE, Daemon, free_port, running, scripted
from tests.waiting import WAIT, eventually

ASKED = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE})


class Served:
    """A daemon with HTTP, and a client of it."""

    def __init__(self, daemon: Daemon, port: int, links: ExitStack) -> None:
        self.daemon = daemon
        self.port = port
        self.links = links

    def ask(
        self, token: str | None, path: str = "/mcp", method: str = "POST", **headers: str
    ) -> http.client.HTTPResponse:
        """The response to `initialize`, or to a request without a body, over a connection of its own."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        self.links.callback(link.close)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        said = {"accept": "application/json, text/event-stream", "content-type": "application/json", **named}
        if token is not None:
            said["authorization"] = f"Bearer {token}"
        link.request(method, path, ASKED if method == "POST" else None, said)
        return link.getresponse()

    def status(self, token: str | None, path: str = "/mcp", **headers: str) -> int:
        """Its status."""
        response = self.ask(token, path, **headers)
        response.read()
        return response.status

    def token(self, *words: str) -> str:
        """The last line of what `mcpd token WORDS` prints."""
        return self.daemon.run("token", *words).splitlines()[-1]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    port = free_port()
    config: dict[str, Any] = {
        "listen": {"http": {"address": f"127.0.0.1:{port}"}},
        "mcpServers": {"notes": scripted(tools=["echo"])},
        "profiles": {
            "default": {"permissions": [{"match": "notes/echo", "then": "ask"}]},
            "reader": {},
            "writer": {},
        },
        "metrics": {"enabled": True},
    }
    with running(config, level="DEBUG") as daemon, ExitStack() as links:
        yield Served(daemon, port, links)


def test_the_token_that_is_made_at_the_start_lets_in_and_nothing_else_does(served: Served) -> None:
    said = served.daemon.said
    assert eventually(lambda: f"http://127.0.0.1:{served.port}/mcp" in said(), said)
    value = served.token()
    assert served.status(value) == 200
    assert served.status(None) == 401
    assert served.status(f"{value[:-1]}x") == 401
    assert served.status(value, host="rebound.example.com") == 403
    assert served.status(value, origin="https://evil.example") == 403
    assert served.status(value, origin="http://localhost:6274") == 200


def test_a_token_counts_as_soon_as_it_is_made_and_for_its_profiles_only(served: Served) -> None:
    value = served.token("new", "ci", "--profile", "reader")
    assert served.status(value) == 200
    assert served.status(value, "/mcp/reader") == 200
    assert served.status(value, "/mcp/writer") == 403
    assert served.status(value, "/mcp/unheard-of") == 403
    told = json.loads(served.daemon.run("token", "list", "--json"))["tokens"]
    assert [(each["name"], each["profiles"]) for each in told] == [(None, None), ("ci", ["reader"])]
    assert told[1]["lastUsed"] > told[1]["since"] - 1


def test_a_revoked_token_lets_nobody_in_and_ends_what_it_had_open(served: Served) -> None:
    mine, other = served.token("new", "phone"), served.token()
    streams = [(served.ask(token), token) for token in (mine, other)]
    opened = [
        served.ask(token, method="GET", mcp_session_id=str(begun.getheader("mcp-session-id")))
        for begun, token in streams
    ]
    assert [stream.status for stream in opened] == [200, 200]
    served.daemon.run("token", "revoke", "phone")
    assert served.status(mine) == 401
    assert opened[0].read().startswith(b":"), "the stream has ended, after its comments"
    assert served.status(other) == 200
    before = other
    served.daemon.run("token", "revoke", "--default")
    assert served.status(before) == 401
    assert opened[1].read().startswith(b":")
    assert served.status(served.token()) == 200


def test_what_a_token_was_allowed_ends_with_it_also_for_a_later_one_of_its_name(served: Served) -> None:
    for allowed in (["notes/echo"], []):
        assert served.status(served.token("new", "ann"), mcpd_session="s") == 200
        if allowed:
            served.daemon.ready()
            served.daemon.run("allow", "token ann: s", "notes/echo")
        listed = json.loads(served.daemon.run("allow", "token ann: s", "--json"))
        assert [each["tool"] for each in listed["allowed"]] == allowed
        served.daemon.run("token", "revoke", "ann")


def test_refusals_are_counted_and_events_and_no_token_is_in_log_metrics_or_event(served: Served) -> None:
    value = served.token("new", "watched")
    served.status(f"{value}x")
    served.status(None)
    printed = served.daemon.run("metrics")
    counted = {line.split()[0]: float(line.split()[1]) for line in printed.splitlines() if line[0] != "#"}
    assert counted['mcpd_http_refused_total{reason="token_wrong"}'] >= 1
    assert counted['mcpd_http_refused_total{reason="token_missing"}'] >= 1

    def reasons() -> set[tuple[str, str]]:
        events = served.daemon.ask("events", kinds=["refused"])["events"]
        return {(each["details"]["door"], each["details"]["reason"]) for each in events}

    # The first of each kind at once; what other tests were refused is counted for a minute.
    eventually(lambda: {("http", "token_wrong"), ("http", "token_missing")} <= reasons(), served.daemon.said)
    shown = served.daemon.run("events", "--kind", "refused")
    assert "refused at http: token wrong" in shown
    asked = [served.daemon.ask("status"), served.daemon.ask("events", kinds=["refused"])]
    said = served.daemon.said() + printed + shown + json.dumps(asked)
    assert "http: refused 127.0.0.1" in said
    assert value not in said
    assert served.token() not in said


def test_no_file_lets_anybody_in_after_a_restart_until_an_operator_confirms_it() -> None:
    port = free_port()
    config = {"listen": {"http": {"address": f"127.0.0.1:{port}"}}}
    with running(config) as daemon, ExitStack() as links:
        here = Served(daemon, port, links)
        file = daemon.state.parent / "tokens.json"
        before, named, gone = here.token(), here.token("new", "ci"), here.token("new", "gone")
        assert before not in file.read_text()
        assert daemon.stop() == 0
        refused = daemon.outcome("token")
        assert (refused.returncode, "mcpd start" in refused.stderr) == (3, True)
        kept = json.loads(file.read_text())
        kept["tokens"]["evil"] = {"sha256": sha256(b"x" * 40).hexdigest(), "since": 0, "console": "control"}
        file.write_text(json.dumps(kept))
        daemon.start()
        assert [here.status(each) for each in (before, named, gone, "x" * 40)] == [401] * 4
        assert b"mcpd token confirm NAME" in here.ask(named).read()
        assert b"confirm" not in here.ask("wrong" * 8).read()
        told = json.loads(daemon.run("token", "list", "--json"))["tokens"]
        assert {each["name"]: each["counts"] for each in told} == dict.fromkeys(
            (None, "ci", "gone", "evil"), False
        )
        daemon.run("token", "confirm", "--default")
        daemon.run("token", "confirm", "ci")
        daemon.run("token", "revoke", "gone")
        assert [here.status(each) for each in (before, named, gone, "x" * 40)] == [200, 200, 401, 401]
        assert "only its digest is kept" in daemon.outcome("token").stderr
        daemon.run("token", "revoke", "--default")
        assert (here.status(before), here.status(here.token())) == (401, 200)


def test_a_file_of_before_becomes_digests_and_loses_nothing() -> None:
    port, default = free_port(), "mcpd_" + "5" * 64
    config = {"listen": {"http": {"address": f"127.0.0.1:{port}"}}}
    named = {"sha256": sha256(b"y" * 40).hexdigest(), "since": 0, "profiles": ["default"]}
    with running(config) as daemon, ExitStack() as links:
        here = Served(daemon, port, links)
        file = daemon.state.parent / "tokens.json"
        assert daemon.stop() == 0
        file.write_text(json.dumps({"default": {"value": default, "since": 1.0}, "tokens": {"ci": named}}))
        daemon.start()
        daemon.run("token", "confirm", "--default")
        daemon.run("token", "confirm", "ci")
        assert [here.status(each) for each in (default, "y" * 40)] == [200, 200]
        assert default not in file.read_text()


def test_an_address_that_others_reach_does_not_start_without_tokens() -> None:
    with running({}) as daemon:
        daemon.config.write_text(json.dumps({"listen": {"http": {"address": "0.0.0.0:0"}}}))
        daemon.run("check", str(daemon.config), check=78)
        daemon.run("run", "--config", str(daemon.config), "--socket", str(daemon.directory / "x"), check=78)


def test_doctor_sees_who_serves_and_that_the_tokens_are_private(served: Served) -> None:
    served.token()
    told = json.loads(served.daemon.run("doctor", "--json", check=None))["findings"]
    assert [each["cause"] for each in told if each["check"] == "http"] == ["http-served"]
    (served.daemon.state.parent / "tokens.json").chmod(0o644)
    told = json.loads(served.daemon.run("doctor", "--json", check=1))["findings"]
    assert [each["cause"] for each in told if each["check"] == "http"] == ["tokens-open", "http-served"]
    (served.daemon.state.parent / "tokens.json").chmod(0o600)
