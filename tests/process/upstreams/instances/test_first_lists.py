"""Servers with instances are listed once before any client, each by an instance that leaves nothing behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from daemon.facts import Switched
from daemon.upstreams import servers
from tests.e2e.harness import scripted
from tests.houses import House, house
from tests.process.upstreams.instances.test_server_instances import made, names, of, text_of, up
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tmp_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Short, as sockets are in it; directories for lists are made there, too."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


SHORT = '{"cwd": ""}'
"""What a server writes down that ends at once."""


def divided(path: Path, **more: Any) -> dict[str, Any]:
    """A server that writes down where it is started."""
    return {**scripted(tools=["pid"], record=str(path / "record")), "share": "workspace", **more}


def runs(path: Path) -> list[dict[str, Any]]:
    record = path / "record"
    lines = record.read_text().splitlines() if record.exists() else []
    return [each for each in map(json.loads, lines) if "cwd" in each]


def left(path: Path) -> list[str]:
    return [each.name for each in path.glob(f"{servers.PREFIX}*")]


async def over(home: House, begun: int = 1, server: str = "s") -> None:
    """Until that many instances have been and nothing of them is left."""
    instances: Any = home.tree.upstreams[server].instances
    await until(
        lambda: instances.ended == begun and not instances.running and not left(home.directory),
        lambda: f"{instances.begun} {instances.ended} {names(home)} {left(home.directory)}",
        seconds=PATIENCE,
    )


def tools(home: House, server: str = "s") -> list[str] | None:
    listed = home.tree.registry.catalog.value.servers[server].tools
    return None if listed is None else list(listed)


@pytest.mark.parametrize("share", ["workspace", "session"])
async def test_a_divided_server_is_listed_once_in_an_empty_directory_that_is_removed(
    tmp_path: Path, share: str
) -> None:
    entry = divided(tmp_path, share=share, env={"WHERE": "${workspace}/x"}, limits={"instances": 1})
    async with house(tmp_path, of(s=entry)) as home:
        await over(home)
        assert tools(home) == ["pid"]
        (start,) = runs(tmp_path)
        assert Path(start["cwd"]).name.startswith(servers.PREFIX)
        assert (Path(start["cwd"]).parent, start["env"]["WHERE"]) == (tmp_path, f"{start['cwd']}/x")
        project = tmp_path / "project"
        project.mkdir()
        actor = await up(home, workspace=str(project))
        assert actor.name in {f"s@{project}", "s#1"}
        assert [each["cwd"] for each in runs(tmp_path)] == [start["cwd"], str(project)]
        # Known by now, also after a reload that changes no more than a bound.
        await home.reload(of(s={**entry, "limits": {"instances": 2}}))
        assert len(runs(tmp_path)) == 2
    for door in ("front", "control"):
        (tmp_path / door).unlink()
    async with house(tmp_path, of(s=entry)) as home:
        # The next daemon knows the tools from the store, and starts nothing.
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (tools(home), names(home), left(tmp_path), len(runs(tmp_path))) == (["pid"], [], [], 2)


async def test_a_server_that_a_reload_adds_is_listed_and_a_lazy_one_is_not(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    async with house(tmp_path, of()) as home:
        await home.reload(of(lazy=divided(tmp_path, start="lazy"), s=divided(tmp_path)))
        await over(home)
        assert (tools(home), tools(home, "lazy")) == (["pid"], None)
        pid = await text_of(await home.connect(nursery))
        assert [str(run["pid"]) == pid for run in runs(tmp_path)] == [False, True]


async def test_one_that_does_not_come_up_is_tried_once_and_again_for_a_client(tmp_path: Path) -> None:
    entry = {
        **divided(tmp_path),
        "command": "/bin/sh",
        "args": ["-c", f"echo '{SHORT}' >> {tmp_path}/record; exit 3"],
    }
    async with house(tmp_path, of(s=entry)) as home:
        await over(home)
        assert (len(runs(tmp_path)), tools(home)) == (1, None)
        await home.reload(of(s={**entry, "limits": {"instances": 2}}))
        home.tree.registry.tell(Switched(off=frozenset({("other", "")})))
        await home.tree.registry.settle()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (len(runs(tmp_path)), names(home)) == (1, [])
        assert not await made(home, workspace=str(tmp_path)).wake()
        assert len(runs(tmp_path)) > 1


async def test_the_instance_that_lists_makes_room_for_a_client_s(tmp_path: Path) -> None:
    silent = scripted(on={"initialize": {"never": True}, "server/discover": {"never": True}})
    deaf = {**silent, "share": "workspace", "limits": {"instances": 1}}
    async with house(tmp_path, of(s=deaf)) as home:
        await until(lambda: bool(names(home)), lambda: "", seconds=PATIENCE)
        actor = made(home, workspace=str(tmp_path))
        assert actor.name in names(home)
        await until(lambda: not left(tmp_path), lambda: str(left(tmp_path)), seconds=PATIENCE)
        assert list(home.tree.servers.actors.values()) == [actor]
