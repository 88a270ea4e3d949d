"""Seed 002 FR-1, NFR-1 and §9: switched off, mcpd lists and answers what the servers do, and knows no sessions.

Bytes are compared with those that real servers write to a client of their own. Every client here names a
session, and every one comes through `mcpd connect`.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import attrs
import msgspec
import pytest

from daemon.protocol import CAPABILITIES_KEY, CLIENT_CAPABILITIES
from tests.e2e.harness import (
    ROOT,
    Daemon,
    RawClient,
    Spawned,
    changeable,
    node_server,
    program,
    scripted,
    serving,
)
from tests.e2e.loading import HANDSHAKE, MODERN, repository, request
from tests.scripted_server import tool
from tests.waiting import WAIT, eventually

Json = dict[str, Any]

KEY = "what was loaded before"
NAMED = {"mcpd/session": KEY}
"""In the `_meta` of each request, besides what the bridge says."""

ENVELOPE = MODERN[0]["params"]["_meta"]


@attrs.frozen
class Real:
    """A real server, and calls that it answers alike each time."""

    entry: Json
    modern: bool
    """Whether mcpd speaks 2026-07-28 with it: the Python SDK's servers order keys differently in each era."""
    calls: list[tuple[str, Json]]


SPACED = tool("schön", title="Schön", inputSchema={"type": "object", "x": 1.50})


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Real]:
    place = tmp_path_factory.mktemp("place")
    repository(place)
    (place / "ü.txt").write_text('zwölf Boxkämpfer\t"jagen"\n')
    here = {"repo_path": str(place)}
    return {
        "git": Real(
            {"command": program("mcp-server-git"), "args": ["--repository", str(place)]},
            modern=True,
            calls=[
                ("git_log", {**here, "max_count": 1}),
                ("git_log", {}),
                ("git_show", {**here, "revision": "ü"}),
            ],
        ),
        "files": Real(
            node_server("server-filesystem", str(place)),
            modern=False,
            calls=[
                ("read_text_file", {"path": str(place / "ü.txt")}),
                ("list_directory", {"path": str(place)}),
                ("read_text_file", {"path": "/etc/passwd"}),
            ],
        ),
        # The others write compact ASCII; this one writes white space and escapes, which stay as they are, too.
        "spaced": Real(scripted(tools=[SPACED]), modern=False, calls=[("schön", {"ü": 1.50})]),
    }


class _Answer(msgspec.Struct):
    id: int | str | None = None
    result: msgspec.Raw = msgspec.Raw()


class _List(msgspec.Struct):
    tools: list[msgspec.Raw]


class Line(Spawned):
    """A program that is spoken to in lines: a server, or the bridge to the daemon."""

    def begin(self, *messages: Json) -> None:
        """Send what comes first, whose ids are small."""
        self._last = 1000
        for each in messages:
            self.send(json.dumps(each).encode())

    def result(self, method: str, params: Json) -> bytes:
        """The raw result of a request."""
        self._last += 1
        self.send(json.dumps(request(self._last, method, params)).encode())
        answers = (msgspec.json.decode(line, type=_Answer) for line in self._file)
        return bytes(next(each.result for each in answers if each.id == self._last))

    def close(self) -> None:
        self.process.kill()
        RawClient.close(self)
        self.process.wait(WAIT)


@contextmanager
def bridge(daemon: Daemon, *options: str) -> Iterator[Line]:
    """A client of the daemon that names a session in every way there is."""
    words = daemon.command("connect", "--socket", str(daemon.socket), *options)
    with Line(words, cwd=ROOT, env={**daemon.environ, "MCPD_SESSION": KEY}) as line:
        line.begin(*HANDSHAKE[:2])
        yield line


def tools_in(result: bytes) -> list[bytes]:
    """The raw tools in a result of `tools/list`."""
    return [bytes(each) for each in msgspec.json.decode(result, type=_List).tools]


@attrs.frozen
class Direct:
    """What a server says to a client of its own, in raw bytes."""

    tools: list[bytes]
    results: list[bytes]


@pytest.fixture(scope="module")
def direct(real: dict[str, Real]) -> dict[str, Direct]:
    found = {}
    for name, server in real.items():
        # As mcpd introduces itself: what a server lists may depend on it.
        meta = {"_meta": {**ENVELOPE, CAPABILITIES_KEY: CLIENT_CAPABILITIES}} if server.modern else {}
        with Line([server.entry["command"], *server.entry["args"]], cwd=ROOT) as line:
            if not server.modern:
                params = {**HANDSHAKE[0]["params"], "capabilities": CLIENT_CAPABILITIES}
                line.begin({**HANDSHAKE[0], "params": params}, HANDSHAKE[1])
            found[name] = Direct(
                tools_in(line.result("tools/list", meta)),
                [
                    line.result("tools/call", {"name": each, "arguments": given, **meta})
                    for each, given in server.calls
                ],
            )
    return found


def configured(real: dict[str, Real], **top: Any) -> Json:
    """The servers, and profiles that are switched off, or would load on demand."""
    return {
        # Each in the era in which it is asked directly, whatever the client's.
        "mcpServers": {
            name: {**server.entry, **({"era": "modern"} if server.modern else {})}
            for name, server in real.items()
        },
        "profiles": {"default": {"surface": "load"}, "off": {"surface": "load", "lazy": False}},
        **top,
    }


def assert_as_direct(line: Line, real: dict[str, Real], direct: dict[str, Direct]) -> None:
    """What a client gets is what it would get without us, byte for byte."""
    listed = line.result("tools/list", {"_meta": NAMED})
    assert listed == b'{"tools":[%b]}' % b",".join(raw for each in direct.values() for raw in each.tools)
    for name, server in real.items():
        for (called, arguments), expected in zip(server.calls, direct[name].results, strict=True):
            params = {"name": called, "arguments": arguments, "_meta": NAMED}
            assert line.result("tools/call", params) == expected, called
    unknown = json.loads(line.result("tools/call", {"name": "load_mcp_server", "arguments": {"name": "git"}}))
    assert unknown["structuredContent"]["error"]["code"] == "UnknownTool"
    modern = {"_meta": {**ENVELOPE, **NAMED}}
    assert tools_in(line.result("tools/list", modern)) == tools_in(listed)


def forget_sessions(daemon: Daemon) -> None:
    """Take the tables of sessions away from under the daemon: whoever asks for one finds out."""
    with closing(sqlite3.connect(daemon.state, timeout=30)) as file:
        file.execute("DROP TABLE sessions")
        file.execute("DROP TABLE loaded_tools")
        file.commit()


def remembered(daemon: Daemon) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What is stored of sessions: their use, and what they loaded. Verdicts follow the servers, used or not."""
    with closing(sqlite3.connect(daemon.state, timeout=30)) as file:
        sessions = file.execute("SELECT key, client, created_at, seen_at FROM sessions").fetchall()
        columns = "session, server, tool, loaded_schema_hash, loaded_epoch, source, loaded_at"
        return sessions, file.execute(f"SELECT {columns} FROM loaded_tools").fetchall()


@pytest.mark.parametrize(
    ("top", "words", "options"),
    [({"lazy": False}, (), ("--surface", "load")), ({}, ("--no-lazy",), ("--lazy",))],
    ids=["the configuration's", "the daemon's"],
)
def test_the_master_switch_leaves_no_trace(
    real: dict[str, Real],
    direct: dict[str, Direct],
    top: Json,
    words: tuple[str, ...],
    options: tuple[str, ...],
) -> None:
    few = {name: real[name] for name in ("files", "spaced")}
    with serving(configured(few, **top), options=words) as daemon:
        forget_sessions(daemon)
        with bridge(daemon, *options) as line:
            assert_as_direct(line, few, {name: direct[name] for name in few})
        assert daemon.persistence()["state"] == "ok"
        assert "WARNING" not in daemon.said()


def test_the_switches_of_a_profile_and_of_a_client_leave_no_trace(
    real: dict[str, Real], direct: dict[str, Direct]
) -> None:
    with serving(configured(real)) as daemon:
        forget_sessions(daemon)
        for options in (
            ["--profile", "off"],
            ["--profile", "off", "--surface", "load"],
            ["--no-lazy"],
            ["--no-lazy", "--surface", "load", "--session", "k"],
        ):
            with bridge(daemon, *options) as line:
                assert_as_direct(line, real, direct)
        assert daemon.persistence()["state"] == "ok"
        assert "WARNING" not in daemon.said()
        # And where it is on, it is noticed: the tables are needed for nothing else.
        with bridge(daemon) as line:
            names = [json.loads(raw)["name"] for raw in tools_in(line.result("tools/list", {}))]
        assert names == ["load_mcp_server", "load_mcp_tool"]
        eventually(lambda: "no such table" in daemon.said(), daemon.said)


OLD, NEW = (
    tool("paint", description="Paints in one colour."),
    tool("paint", description="Paints in two colours."),
)


def test_what_a_session_had_loaded_neither_matters_nor_changes_while_it_is_switched_off() -> None:
    config: Json = {"mcpServers": {"painter": changeable(OLD)}, "profiles": {"default": {"surface": "load"}}}
    painted = {"name": "paint", "arguments": {"x": 1}, "_meta": NAMED}
    with serving(config) as daemon:
        with bridge(daemon) as line:
            line.result(
                "tools/call", {"name": "load_mcp_tool", "arguments": {"names": ["paint"]}, "_meta": NAMED}
            )
        assert daemon.stop() == 0
        before = remembered(daemon)
        assert [len(rows) for rows in before] == [1, 1]

        daemon.config.write_text(
            json.dumps({**config, "lazy": False, "mcpServers": {"painter": changeable(NEW)}})
        )
        daemon.start()
        daemon.ready()
        with bridge(daemon) as line:
            assert len(tools_in(line.result("tools/list", {"_meta": NAMED}))) == 3
            assert json.loads(line.result("tools/call", painted))["content"][0]["text"] == '{"x": 1}'
        assert daemon.stop() == 0
        assert remembered(daemon) == before

        # Switched on again, it is as it was.
        daemon.config.write_text(json.dumps({**config, "mcpServers": {"painter": changeable(NEW)}}))
        daemon.start()
        daemon.ready()
        with bridge(daemon) as line:
            refused = json.loads(line.result("tools/call", painted))
        assert refused["structuredContent"]["error"]["code"] == "ToolChanged"
