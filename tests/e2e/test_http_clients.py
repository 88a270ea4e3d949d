"""Clients that nobody here wrote, over streamable HTTP: the SDKs of two languages and both eras."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from tests.e2e.doors import HttpDoor
from tests.e2e.harness import Daemon, program, running, scripted
from tests.e2e.scripts import (
    CHANGED,
    LIST,
    PYTHON,
    PYTHON1,
    TYPESCRIPT,
    TYPESCRIPT2,
    Clients,
    aborted,
    call,
    followed,
    meanwhile,
    names,
    refusal,
    zone,
)
from tests.waiting import WAIT, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

MODERN = {"mode": "2026-07-28"}
DELETES = {"delete": True}
"""The TypeScript SDKs leave it to their users to delete the session."""


@attrs.frozen
class Kind:
    """A kind of client."""

    argv: tuple[str, ...]
    job: dict[str, Any] = attrs.field(factory=dict)
    gone: object = None
    """The code of the error that it makes of a session that is gone; None: it has none to lose."""

    @property
    def listening(self) -> dict[str, Any]:
        """Its job if it wants to be told of changes: over handshake sessions it always is."""
        return self.job if self.gone else {**self.job, "listen": True}


SESSION_TERMINATED = 32600
"""What the Python SDKs make of a 404."""

KINDS = {
    "python-1": Kind(PYTHON1, gone=SESSION_TERMINATED),
    "python-2-handshake": Kind(PYTHON, gone=-SESSION_TERMINATED),
    "python-2-auto": Kind(PYTHON, {"mode": "auto"}),
    "python-2-modern": Kind(PYTHON, MODERN),
    "typescript-1": Kind(TYPESCRIPT, DELETES, gone=404),
    "typescript-2-handshake": Kind(TYPESCRIPT2, DELETES, gone=404),
    "typescript-2-modern": Kind(TYPESCRIPT2, MODERN),
}

CONFIG = {
    "mcpServers": {"time": {"command": program("mcp-server-time")}},
    "categories": {
        "clock": {"description": "What time it is.", "server": "time"},
        "work": {"description": "What takes long.", "server": "work"},
    },
}


@pytest.fixture(scope="module")
def door() -> HttpDoor:
    return HttpDoor()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server `work` writes down what it is told."""
    return tmp_path_factory.mktemp("work") / "record"


@pytest.fixture(scope="module")
def daemon(door: HttpDoor, record: Path) -> Iterator[Daemon]:
    work = scripted(tools=["echo", "progress"], record=str(record))
    config = {**CONFIG, "mcpServers": {**CONFIG["mcpServers"], "work": work}, "listen": door.listen}
    with running(config) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def client(kind: Kind) -> Iterator[Clients]:
    with Clients(kind.argv) as client:
        yield client


def run(category: str, name: str, **args: Any) -> dict[str, Any]:
    """The arguments of `call-category-tool`."""
    return {"category": category, "name": name, "args": args}


def test_it_lists_describes_calls_is_told_of_progress_and_is_refused(
    daemon: Daemon, door: HttpDoor, kind: Kind, client: Clients
) -> None:
    seen = client.over_http(
        door.url(),
        door.headers(),
        LIST,
        call("get-category-tools", category="clock"),
        call("call-category-tool", **run("clock", "get_current_time", timezone="UTC")),
        followed("call-category-tool", **run("work", "progress", count=3)),
        call("call-category-tool", **run("nonsense", "echo")),
        call("no-such-tool"),
        **kind.job,
    )

    listed, described, answered, followed_, refused, unknown = seen.results
    assert names(listed) == ["get-category-tools", "call-category-tool", "call-read-only-tool"]
    assert sorted(described["structured"]["tools"]) == ["convert_time", "get_current_time"]
    assert zone(answered) == "UTC"
    assert followed_["isError"] is False
    assert followed_["progress"] == [1, 2, 3]
    assert refusal(refused)["code"] == "UnknownCategory"
    assert "UnknownTool" in str(unknown)


def test_a_call_that_it_gives_up_is_cancelled_at_the_server(
    daemon: Daemon, door: HttpDoor, kind: Kind, client: Clients, record: Path
) -> None:
    before = record.read_text().count('"cancelled"')

    seen = client.over_http(
        door.url(),
        door.headers(),
        aborted("call-category-tool", **run("work", "progress", count=1, seconds=10 * WAIT)),
        meanwhile(lambda: eventually(lambda: record.read_text().count('"cancelled"') > before, daemon.said)),
        call("call-category-tool", **run("work", "echo", text="still here")),
        **kind.job,
    )

    assert "still here" in seen.last["text"]


def test_tools_that_it_loads_are_announced_listed_and_callable(
    daemon: Daemon, door: HttpDoor, kind: Kind, client: Clients
) -> None:
    seen = client.over_http(
        door.url("default", "load"),
        door.headers(f"announced-{id(kind)}"),
        LIST,
        call("load_mcp_tool", names=["echo"]),
        CHANGED,
        LIST,
        call("echo", text="hello"),
        **kind.listening,
    )

    before, _, _, after, answered = seen.results
    assert "echo" not in names(before)
    assert "echo" in names(after)
    assert "hello" in answered["text"]


def test_a_session_with_a_key_has_what_an_earlier_one_loaded(
    daemon: Daemon, door: HttpDoor, kind: Kind, client: Clients
) -> None:
    key = f"keyed-{id(kind)}"
    where = door.url("default", "load"), door.headers(key)

    client.over_http(*where, call("load_mcp_tool", names=["echo"]), **kind.job)
    seen = client.over_http(*where, LIST, call("echo", text="again"), **kind.job)

    assert set(daemon.loaded(key)) == {"work/echo"}
    assert "echo" in names(seen.results[0])
    assert "again" in seen.last["text"]


def test_without_a_key_what_it_loads_can_be_called_and_is_listed_if_there_is_a_session(
    daemon: Daemon, door: HttpDoor, kind: Kind, client: Clients
) -> None:
    seen = client.over_http(
        door.url("default", "load"),
        door.headers(),
        call("load_mcp_tool", names=["echo"]),
        call("echo", text="loaded"),
        LIST,
        **kind.job,
    )

    _, answered, listed = seen.results
    assert "loaded" in answered["text"]
    assert ("echo" in names(listed)) is (kind.gone is not None)


def test_nothing_of_it_is_left_when_it_has_gone(
    daemon: Daemon, door: HttpDoor, kind: Kind, client: Clients
) -> None:
    connected: list[int] = []

    client.over_http(
        door.url(),
        door.headers(),
        LIST,
        meanwhile(lambda: connected.append(len(daemon.ask("status")["sessions"]))),
        **kind.job,
    )

    assert connected[0] >= 1
    eventually(lambda: not daemon.ask("status")["sessions"], lambda: daemon.ask("status")["sessions"])


def test_after_a_restart_of_the_daemon_it_goes_on_or_is_told_that_its_session_is_gone_and_nothing_is_lost(
    daemon: Daemon, door: HttpDoor, kind: Kind, client: Clients
) -> None:
    key = f"restarted-{id(kind)}"
    where = door.url("default", "load"), door.headers(key)

    def restart() -> None:
        assert daemon.stop() == 0
        daemon.start()

    seen = client.over_http(
        *where,
        call("load_mcp_tool", names=["echo"]),
        meanwhile(restart),
        call("echo", text="after"),
        **{**kind.job, "delete": False},
    )
    anew = client.over_http(*where, call("echo", text="anew"), **kind.job)

    if kind.gone:
        assert seen.last["fault"]["code"] == kind.gone
    else:
        assert "after" in seen.last["text"]
    assert "anew" in anew.last["text"]


def test_a_call_in_flight_is_answered_when_the_daemon_is_stopped(
    daemon: Daemon, door: HttpDoor, kind: Kind, client: Clients, record: Path
) -> None:
    before = record.read_text().count('"progress"')

    def stop() -> int:
        eventually(lambda: record.read_text().count('"progress"') > before, daemon.said)
        return daemon.stop()

    work = call("call-category-tool", **run("work", "progress", count=0, seconds=10 * WAIT))
    with ThreadPoolExecutor(1) as beside:
        stopped = beside.submit(stop)
        seen = client.over_http(door.url(), door.headers(), work, **{**kind.job, "delete": False})
        assert stopped.result() == 0
    daemon.start()

    assert refusal(seen.last)["code"] == "UpstreamLost"
