"""The workspace of a client: which source counts, what is no workspace, and what is said about a bad one."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.clients.workspace import (
    AT_ONCE,
    MAX_LOOKS,
    MAX_SHOWN,
    RESOLVE_SECONDS,
    OwnWorkspace,
    first_directory,
    looking,
    shown,
)
from daemon.errors import UpstreamTimeout
from daemon.wire.envelope import RemoteError
from tests.unit.cases import cases
from tests.waiting import in_time


@attrs.define(eq=False)
class Rooted:
    """A client that tells its roots."""

    uris: list[str] = attrs.field(factory=list)
    error: Exception | None = None
    asked: list[bytes | None] = attrs.field(factory=list)
    gate: trio.Event = attrs.field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.gate.set()

    async def tell(self, request_id: bytes | None) -> list[str]:
        self.asked.append(request_id)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.uris


async def found(
    said: dict[str, Any], roots: Rooted | None = None, allowed: tuple[str, ...] | None = None
) -> OwnWorkspace:
    workspace = OwnWorkspace(allowed)
    workspace.take_hello(said)
    if roots is not None:
        workspace.have_roots(roots.tell)
    await in_time(workspace.find(b"7"))
    return workspace


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some directories, one of which is the user's home."""
    for name in ("named", "root", "started", "home/app"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


async def test_who_says_nothing_has_none() -> None:
    workspace = OwnWorkspace()
    assert workspace.is_known
    workspace.take_hello({"profile": "p"})
    await workspace.find()
    assert (workspace.is_known, workspace.directory, workspace.fault, workspace.shown) == (True, None, "", "")


async def test_what_is_named_is_normalised_and_counts_before_a_root_and_that_before_where_the_bridge_runs(
    places: Path,
) -> None:
    said, roots = {"directory": str(places / "started")}, Rooted([(places / "root").as_uri()])
    assert (await found(said)).directory == str(places / "started")
    assert (await found(said, roots)).directory == str(places / "root")
    named = await found({**said, "workspace": str(places / "named")}, roots)
    assert named.directory == str(places / "named")
    # Who names it itself is not asked.
    assert roots.asked == [b"7"]
    (places / "link").symlink_to(places / "named")
    workspace = await found({"workspace": f"{places}//link/../root/./"})
    assert workspace.directory == str(places / "root")


@pytest.mark.parametrize("way", ["workspace", "directory", "root"])
async def test_a_client_works_only_where_its_token_may(places: Path, way: str) -> None:
    (places / "home/app/link").symlink_to(places / "named")

    async def at(place: str, *allowed: str) -> tuple[str | None, bool]:
        path = f"{places}/{place}"
        roots = Rooted([f"file://{path}"]) if way == "root" else None
        workspace = await found({} if roots else {way: path}, roots, allowed)
        return workspace.directory, "may not work" in workspace.fault

    assert await at("home/app", "~/*") == (f"{places}/home/app", False)
    assert await at("home/app", "/nowhere", str(places / "home/app")) == (f"{places}/home/app", False)
    # Whether there is such a directory is not told either.
    for place in ("named", "missing", "home/app/link", "home/app/../../named"):
        assert await at(place, "~/*") == (None, True)
    assert await at("home/app") == (None, True)


@cases("said", "told")
async def test_what_cannot_be_a_workspace_is_told_with_what_to_do(said: object, told: str) -> None:
    workspace = await found({"workspace": said, "directory": "/usr"})
    assert workspace.directory is None
    assert told in workspace.fault
    assert workspace.fault.endswith("or the header Mcpd-Workspace")
    assert len(workspace.fault) < 2 * MAX_SHOWN + 300
    assert workspace.shown == workspace.fault


async def test_a_bad_root_is_told_and_nothing_is_taken_in_its_place(places: Path) -> None:
    workspace = await found({"directory": str(places / "started")}, Rooted(["file:///no/such/root"]))
    assert workspace.directory is None
    assert "'/no/such/root' does not exist" in workspace.fault


@pytest.mark.parametrize("home", ["/", "home"])
async def test_what_nobody_has_named_is_none_if_it_is_the_root_or_a_home(places: Path, home: str) -> None:
    implied = str(places / home)
    assert (await found({"directory": implied})).directory is None
    assert (await found({"directory": implied})).fault == ""
    rooted = await found({"directory": str(places / "started")}, Rooted([f"file://{implied}"]))
    assert rooted.directory == str(places / "started")
    assert (await found({"directory": str(places / "home" / "app")})).directory == str(places / "home" / "app")
    named = await found({"workspace": str(places / "home")})
    assert (named.directory, named.shown) == (str(places / "home"), "~")


@cases("uris", "path")
def test_the_first_root_that_is_a_directory_here_is_meant(uris: list[str], path: str | None) -> None:
    assert first_directory(uris) == path


@pytest.mark.parametrize(
    "error", [RemoteError(-32601, "no roots"), UpstreamTimeout("there was no answer within 10 s")]
)
async def test_without_roots_a_client_works_where_its_bridge_started(places: Path, error: Exception) -> None:
    started = await found({"directory": str(places / "started")}, Rooted(error=error))
    assert (started.directory, started.fault) == (str(places / "started"), "")
    nowhere = await found({}, Rooted(error=error))
    assert nowhere.directory is None
    assert "was asked for its roots, and has not named them" in nowhere.fault


async def test_it_is_looked_for_again_once_the_roots_have_changed(places: Path) -> None:
    roots = Rooted([(places / "root").as_uri()])
    workspace = await found({}, roots)
    before = workspace.version
    await workspace.find(b"8")
    assert (roots.asked, workspace.version) == ([b"7"], before)
    roots.uris = ["file://" + quote(str(places / "named"))]
    workspace.changed()
    assert (workspace.is_known, workspace.version == before) == (False, False)
    await workspace.find(b"9")
    assert (workspace.directory, roots.asked) == (str(places / "named"), [b"7", b"9"])


async def test_roots_that_change_while_they_are_told_are_asked_for_again_but_not_for_ever() -> None:
    workspace, asked = OwnWorkspace(), []

    async def tell(request_id: bytes | None) -> list[str]:
        await trio.lowlevel.checkpoint()
        asked.append(request_id)
        workspace.changed()
        return []

    workspace.have_roots(tell)
    await workspace.find()
    assert (len(asked), workspace.is_known) == (MAX_LOOKS, True)


async def test_one_looks_for_all_or_another_takes_over(places: Path, nursery: trio.Nursery) -> None:
    roots = Rooted([(places / "root").as_uri()])
    roots.gate = trio.Event()
    workspace = OwnWorkspace()
    workspace.have_roots(roots.tell)
    given_up, done = trio.CancelScope(), trio.Event()

    async def first() -> None:
        with given_up:
            await workspace.find(b"1")

    async def second() -> None:
        await workspace.find(b"2")
        done.set()

    nursery.start_soon(first)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(second)
    await trio.testing.wait_all_tasks_blocked()
    assert roots.asked == [b"1"]
    given_up.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert roots.asked == [b"1", b"2"]
    roots.gate.set()
    await in_time(done.wait())
    assert workspace.directory == str(places / "root")


async def test_a_file_system_that_does_not_answer_holds_nobody_up_for_long(autojump_clock: MockClock) -> None:
    for each in range(AT_ONCE):
        looking.acquire_on_behalf_of_nowait(each)
    began = trio.current_time()
    try:
        workspace = await found({"workspace": "/usr"})
    finally:
        for each in range(AT_ONCE):
            looking.release_on_behalf_of(each)
    assert trio.current_time() - began == pytest.approx(RESOLVE_SECONDS)
    assert "there was no answer" in workspace.fault


def test_a_directory_is_shown_short_and_legible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me/")
    assert [shown(each) for each in ("/home/me/src/app", "/home/me", "/home/mel", "/a\nb")] == [
        "~/src/app",
        "~",
        "/home/mel",
        r"/a\x0ab",
    ]
    assert len(shown("/" + "x" * 1000)) == MAX_SHOWN + 1
    monkeypatch.delenv("HOME")
    assert shown("/home/me") == "/home/me"
