"""Clients that nobody here wrote, SDKs of two languages and both eras, over the socket, the bridge and HTTP.

They do what models need, see a tool that changes announced, and call nothing as it was; and where a client does
not listen, its next call says what has changed.
"""

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.e2e.harness import Daemon, changeable, scripted, serving
from tests.e2e.raw_http import HttpDoor
from tests.e2e.scripts import (
    CHANGED,
    LIST,
    PYTHON,
    PYTHON1,
    TYPESCRIPT,
    TYPESCRIPT2,
    Outcome,
    Processes,
    aborted,
    call,
    followed,
    meanwhile,
    names,
    refusal,
)
from tests.pairwise import at_night, each_once
from tests.scripted_server import tool
from tests.waiting import WAIT, eventually

MODERN = {"mode": "2026-07-28"}
SESSION_TERMINATED = 32600
"""What the Python SDKs make of a 404."""

WAYS = ("socket", "connect", "http")
SURFACES = ("category", "browse", "search", "load", "full")
TOOLS = ["paint", "set_tools", "announce"]
DOOR = HttpDoor()


@attrs.frozen
class Kind:
    """A kind of client."""

    argv: tuple[str, ...]
    job: dict[str, Any] = attrs.field(factory=dict)
    gone: object = None
    """The code of the error that it makes of a session over HTTP that is gone; None: it has none to lose."""

    @property
    def listening(self) -> dict[str, Any]:
        """Its job if it wants to be told of changes: over handshake sessions it always is."""
        return self.job if self.gone else {**self.job, "listen": True}


KINDS = {
    "python-1": Kind(PYTHON1, gone=SESSION_TERMINATED),
    "python-2-handshake": Kind(PYTHON, gone=-SESSION_TERMINATED),
    "python-2-auto": Kind(PYTHON, {"mode": "auto"}),
    "python-2-modern": Kind(PYTHON, MODERN),
    # The TypeScript SDKs leave it to their users to delete a session.
    "typescript-1": Kind(TYPESCRIPT, {"delete": True}, gone=404),
    "typescript-2-handshake": Kind(TYPESCRIPT2, {"delete": True}, gone=404),
    "typescript-2-modern": Kind(TYPESCRIPT2, MODERN),
}


@attrs.define
class Painter:
    """A server whose tool changes when a client calls for it; no version comes twice."""

    version: int = 1

    @property
    def words(self) -> str:
        """How the tool describes itself now."""
        return f"Paints in {self.version} colours."

    def tool(self) -> dict[str, Any]:
        """The tool that changes."""
        colour = {"type": "object", "properties": {f"colour{self.version}": {"type": "string"}}}
        return tool("paint", description=self.words, inputSchema=colour)

    def change(self, surface: str) -> list[dict[str, Any]]:
        """The calls that change the tool. What they announce, the daemon has read before they are answered."""
        self.version += 1
        tools = {"tools": [self.tool(), *TOOLS[1:]]}
        return [wrapped(surface, "set_tools", tools), wrapped(surface, "announce", {"count": 1})]


PAINTER = Painter()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server `work` writes down what it is told."""
    return tmp_path_factory.mktemp("work") / "record"


@pytest.fixture(scope="module")
def daemon(record: Path) -> Iterator[Daemon]:
    config = {
        "mcpServers": {
            "work": scripted(tools=["echo", "progress"], record=str(record)),
            "painter": changeable(PAINTER.tool()),
        },
        "profiles": {"default": {}, **{surface: {"surface": surface} for surface in SURFACES}},
        "listen": DOOR.listen,
    }
    with serving(config) as daemon:
        yield daemon


@pytest.fixture
def session(daemon: Daemon, sdks: Processes) -> Callable[..., Outcome]:
    """A session of a kind of client by one of the ways; its `job` is the kind's own unless given."""

    def begun(
        kind: str, way: str, *steps: Any, profile: str = "default", key: str = "", job: Any = None
    ) -> Outcome:
        client, job = sdks[KINDS[kind].argv], KINDS[kind].job if job is None else job
        if way == "http":
            return client.over_http(DOOR.url(profile), DOOR.headers(key or None), *steps, **job)
        job = {name: each for name, each in job.items() if name != "delete"}
        if way == "socket":
            hello = {"profile": profile, **({"session": key} if key else {})}
            return client.session(daemon, *steps, hello=hello, **job)
        return client.bridged(
            daemon, ["--profile", profile, *(["--session", key] if key else [])], *steps, **job
        )

    return begun


def run(name: str, **args: Any) -> tuple[str, dict[str, Any]]:
    """The meta-tool that calls a tool of the server `work`, and its arguments."""
    return "call-category-tool", {"category": "work", "name": name, "args": args}


def wrapped(surface: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A call of the painter's tool, as it is done on a surface."""
    match surface:
        case "category":
            return call("call-category-tool", category="painter", name=name, args=arguments)
        case "browse":
            return call("call_tool", tool_name=name, arguments=arguments)
        case _:
            return call(name, **arguments)


def looks(surface: str) -> list[dict[str, Any]]:
    """How a client of a surface comes to know the painter's tools."""
    match surface:
        case "category":
            return [call("get-category-tools", category="painter")]
        case "browse":
            return [call("get_tools", category="painter")]
        case "search":
            return [call("search_tools", query="paint"), LIST]
        case "load":
            return [call("load_mcp_tool", names=TOOLS)]
        case _:
            return [LIST]


def shown(listing: dict[str, Any]) -> str:
    """What a list, or a description, says of the tool that changes."""
    tools = listing["tools"]
    found = tools if isinstance(tools, dict) else {each["name"]: each for each in tools}
    return str(found["paint"]["description"])


# --- calls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "way"), each_once([*KINDS], WAYS))
def test_a_real_client_lists_describes_calls_is_told_of_progress_and_is_refused(
    session: Callable[..., Outcome], kind: str, way: str
) -> None:
    progress, arguments = run("progress", count=3)
    seen = session(
        kind,
        way,
        LIST,
        call("get-category-tools", category="work"),
        followed(progress, **arguments),
        call("call-category-tool", category="nonsense", name="echo", args={}),
        call("no-such-tool"),
    )
    listed, described, reported, refused, unknown = seen.results
    assert names(listed) == ["get-category-tools", "call-category-tool", "call-read-only-tool"]
    assert sorted(described["structured"]["tools"]) == ["echo", "progress"]
    assert reported["isError"] is False
    # The TypeScript SDKs forget who asked when the reports come in one piece with the answer.
    if way == "http" or not kind.startswith("typescript"):
        assert reported["progress"] == [1, 2, 3]
    assert refusal(refused)["code"] == "UnknownCategory"
    assert "UnknownTool" in str(unknown)


@pytest.mark.parametrize(
    ("kind", "way"),
    at_night(
        product(KINDS, WAYS), ("python-1", "socket"), ("python-2-modern", "http"), ("typescript-1", "http")
    ),
)
def test_a_call_that_it_gives_up_is_cancelled_at_the_server(
    session: Callable[..., Outcome], daemon: Daemon, record: Path, kind: str, way: str
) -> None:
    before = record.read_text().count('"cancelled"')
    name, arguments = run("progress", count=1, seconds=10 * WAIT)
    again, said = run("echo", text="still here")
    seen = session(
        kind,
        way,
        aborted(name, **arguments),
        meanwhile(lambda: eventually(lambda: record.read_text().count('"cancelled"') > before, daemon.said)),
        call(again, **said),
    )
    assert "still here" in seen.last["text"]


@pytest.mark.parametrize("kind", at_night(KINDS, "python-2-handshake", "typescript-2-modern"))
def test_without_a_key_what_it_loads_can_be_called_and_is_listed_if_there_is_a_session(
    session: Callable[..., Outcome], kind: str
) -> None:
    loaded = call("load_mcp_tool", names=["echo"])
    _, answered, listed = session(
        kind, "http", loaded, call("echo", text="loaded"), LIST, profile="load"
    ).results
    assert "loaded" in answered["text"]
    assert ("echo" in names(listed)) is (KINDS[kind].gone is not None)


@pytest.mark.parametrize(("kind", "way"), each_once([*KINDS], WAYS))
def test_a_session_with_a_key_has_what_an_earlier_one_loaded_and_nothing_else_of_it_is_left(
    session: Callable[..., Outcome], daemon: Daemon, kind: str, way: str
) -> None:
    key = f"keyed {kind} {way}"
    connected: list[int] = []
    session(kind, way, call("load_mcp_tool", names=["echo"]), profile="load", key=key)
    look = meanwhile(lambda: connected.append(len(daemon.ask("status")["sessions"])))
    listed, _, called = session(
        kind, way, LIST, look, call("echo", text="again"), profile="load", key=key
    ).results
    assert set(daemon.loaded(key)) == {"work/echo"}
    assert "echo" in names(listed)
    assert "again" in called["text"]
    assert connected[0] >= 1
    eventually(lambda: not daemon.ask("status")["sessions"], lambda: daemon.ask("status")["sessions"])


# --- a tool that changes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "way"), each_once([*KINDS], WAYS[::-1]))
def test_a_client_that_listens_lists_again_and_calls_the_new_form_at_once(
    session: Callable[..., Outcome], kind: str, way: str
) -> None:
    before, change = PAINTER.words, PAINTER.change("full")
    steps = [LIST, *change, CHANGED, LIST, call("paint")]
    seen = session(kind, way, *steps, profile="full", key=secrets.token_hex(8), job=KINDS[kind].listening)
    first, _, _, _, second, called = seen.results
    assert (shown(first), shown(second)) == (before, PAINTER.words)
    assert called["isError"] is False, called
    assert seen.changes >= 1


@pytest.mark.parametrize(("kind", "way"), each_once([*KINDS], WAYS))
def test_a_client_that_listens_sees_a_loaded_tool_leave_its_list_and_come_back(
    session: Callable[..., Outcome], kind: str, way: str
) -> None:
    load = call("load_mcp_tool", names=TOOLS)
    steps = [LIST, load, CHANGED, LIST, *PAINTER.change("load"), CHANGED, LIST, call("paint")]
    seen = session(
        kind,
        way,
        *[*steps, load, CHANGED, LIST, call("paint")],
        profile="load",
        key=secrets.token_hex(8),
        job=KINDS[kind].listening,
    )
    first, _, _, loaded, _, _, _, changed, refused, _, _, again, called = seen.results
    assert names(loaded) == [*names(first), *TOOLS]
    assert names(changed)[2:] == TOOLS[1:]
    assert refusal(refused)["code"] == "ToolChanged"
    assert names(again)[2:] == [*TOOLS[1:], "paint"]
    assert shown(again) == PAINTER.words
    assert called["isError"] is False, called


@pytest.mark.parametrize(("kind", "surface", "way"), each_once([*KINDS], SURFACES, ("socket", "http")))
def test_a_client_that_does_not_listen_is_told_once_with_the_new_definition_and_goes_on(
    session: Callable[..., Outcome], kind: str, surface: str, way: str
) -> None:
    before, change, use = PAINTER.words, PAINTER.change(surface), wrapped(surface, "paint", {})
    # On `load` a changed tool is loaded again.
    again = looks(surface) if surface == "load" else []
    seen = session(
        kind, way, *[*looks(surface), *change, use, *again, use], profile=surface, key=secrets.token_hex(8)
    )
    (*looked, _, _, refused), called = seen.results[: -1 - len(again)], seen.last
    assert shown(looked[-1].get("structured") or looked[-1]) == before
    error = refusal(refused)
    assert (error["code"], error["tool"], error["server"]) == ("ToolChanged", "paint", "painter")
    assert error["definition"]["description"] == PAINTER.words
    assert list(error["definition"]["inputSchema"]["properties"]) == [f"colour{PAINTER.version}"]
    assert called["isError"] is False, called


# --- a daemon that ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", at_night(KINDS, "python-2-handshake", "typescript-1", "typescript-2-modern"))
def test_after_a_restart_of_the_daemon_it_goes_on_or_is_told_that_its_session_is_gone_and_nothing_is_lost(
    session: Callable[..., Outcome], daemon: Daemon, kind: str
) -> None:
    key = f"restarted {kind}"

    def restart() -> None:
        assert daemon.stop() == 0
        daemon.start()

    load, keep = call("load_mcp_tool", names=["echo"]), {**KINDS[kind].job, "delete": False}
    steps = [load, meanwhile(restart), call("echo", text="after")]
    seen = session(kind, "http", *steps, profile="load", key=key, job=keep)
    anew = session(kind, "http", call("echo", text="anew"), profile="load", key=key)
    if gone := KINDS[kind].gone:
        assert seen.last["fault"]["code"] == gone
    else:
        assert "after" in seen.last["text"]
    assert "anew" in anew.last["text"]


@pytest.mark.parametrize("kind", at_night(KINDS, "python-2-modern", "typescript-2-handshake"))
def test_a_call_in_flight_is_answered_when_the_daemon_is_stopped(
    session: Callable[..., Outcome], daemon: Daemon, record: Path, kind: str
) -> None:
    before = record.read_text().count('"progress"')

    def stop() -> int:
        eventually(lambda: record.read_text().count('"progress"') > before, daemon.said)
        return daemon.stop()

    name, arguments = run("progress", count=0, seconds=10 * WAIT)
    with ThreadPoolExecutor(1) as beside:
        stopped = beside.submit(stop)
        seen = session(kind, "http", call(name, **arguments), job={**KINDS[kind].job, "delete": False})
        assert stopped.result() == 0
    daemon.start()
    assert refusal(seen.last)["code"] == "UpstreamLost"
