"""The recorder on a real file of SQLite, and what people and other programs do to it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from loguru import logger

from daemon.config.state_url import of_file
from daemon.facts import Switched
from daemon.state.faults import StoreFault
from daemon.state.health import Condition
from daemon.state.store import Store, set_aside
from tests.damages import held, replaced_by_nonsense, rows
from tests.unit.actors.recording import START, Stage, begin, life, session, tools_of
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SLACK = 20.0
"""How many times longer an operation may take than in a daemon: the machine may be busy."""

writers = iter(range(1_000_000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


def on(path: Path, *names: str, slack: float = SLACK, **more: Any) -> Stage:
    """A life whose store is this file."""
    url = of_file(path)

    def open_store() -> Store:
        return Store.open(url, writer=f"life-{next(writers)}", slack=slack)

    return begin(open_store, *names, where=str(path), set_aside=lambda: set_aside(url, START), **more)


async def learn(stage: Stage) -> None:
    """Something of everything is known, and written."""
    await stage.lists("a", "read", "write")
    stage.tell(Switched(off=frozenset({("b", "x")})))
    stage.recorder.keep(session("key", "read", "write"))
    assert await stage.recorder.kept("key")
    await stage.written()


async def all_is_there(path: Path, *keys: str) -> None:
    """Another life finds what `learn` wrote, and these sessions."""
    async with life(on(path)) as stage:
        assert list(tools_of(stage.entry())) == ["read", "write"]
        assert stage.registry.catalog.value.switched == {("b", "x")}
        for key in ("key", *keys):
            assert await stage.recorder.recall(key) is not None


async def test_a_life_that_is_cut_off_has_lost_nothing_that_was_acknowledged(path: Path) -> None:
    async with life(on(path), finish=False) as stage:
        await learn(stage)
    async with life(on(path)) as stage:
        assert list(tools_of(stage.entry())) == ["read", "write"]
        assert stage.entry().epoch == 1
        assert await stage.recorder.recall("key") == session("key", "read", "write")


def folder_removed(path: Path) -> None:
    shutil.rmtree(path.parent)


def tables_dropped(path: Path) -> None:
    rows(path, "DROP TABLE sessions")


def overwrite_pages(path: Path) -> None:
    """All but the first, which tells SQLite that it is a database."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))


@pytest.mark.parametrize(
    "damage",
    [folder_removed, replaced_by_nonsense, tables_dropped],
)
async def test_a_file_that_is_taken_away_is_written_anew(path: Path, damage: Callable[[Path], None]) -> None:
    async with life(on(path)) as stage:
        await learn(stage)
        damage(path)
        stage.recorder.keep(session("later", "read"))
        await until(lambda: "later" not in stage.recorder.statistics().unwritten)
        await stage.written()
        assert stage.recorder.persistence.value.state is Condition.OK
        assert stage.reason
    await all_is_there(path, "later")


async def test_a_file_with_pages_overwritten_is_set_aside(path: Path) -> None:
    async with life(on(path)) as stage:
        await learn(stage)
        for number in range(200):
            stage.recorder.keep(session(f"{number}", "read"))
        await stage.written()
    overwrite_pages(path)
    async with life(on(path)) as stage:
        assert ".corrupt-" in stage.reason
        await learn(stage)
    await all_is_there(path)


async def test_a_file_that_another_program_holds_is_waited_for(path: Path) -> None:
    async with life(on(path, slack=0.5)) as stage:
        await learn(stage)
        with held(path):
            stage.recorder.keep(session("later", "read"))
            await until(lambda: stage.degraded)
            assert "locked" in stage.reason
            assert not await stage.recorder.kept("later")
            assert await stage.recorder.recall("key") == session("key", "read", "write")
        await stage.written()
    await all_is_there(path, "later")


async def test_what_was_begun_without_the_file_is_put_together_with_it(path: Path) -> None:
    async with life(on(path)) as stage:
        await learn(stage)
    rows(path, "PRAGMA journal_mode = DELETE")
    with held(path):
        stage = on(path, slack=0.5)
        await stage.recorder.open()
        with pytest.raises(StoreFault):
            await stage.recorder.recall("key")
        for key in ("key", "later"):
            stage.recorder.keep(attrs.evolve(session(key, "read"), partial=True))
        assert await stage.recorder.recall("key") == attrs.evolve(session("key", "read"), partial=True)
    async with life(stage, opened=True):
        await until(lambda: not stage.degraded)
        assert await stage.recorder.recall("later") == session("later", "read")
        await stage.written()
    async with life(on(path)) as stage:
        found = await stage.recorder.recall("key")
        assert found is not None
        # What was loaded last stands last.
        assert list(found.loaded.tools) == [("a", "write"), ("a", "read")]
        assert found == session("key", "read", "write")
        assert await stage.recorder.recall("later") == session("later", "read")


async def test_a_row_that_somebody_has_edited_costs_that_tool(path: Path) -> None:
    async with life(on(path)) as stage:
        await learn(stage)
    rows(path, "UPDATE tools SET raw = 'nonsense' WHERE name = 'read'")
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    async with life(on(path)) as stage:
        assert list(tools_of(stage.entry())) == ["write"]
        await stage.lists("a", "read", "write")
        await stage.written()
    logger.remove(sink)
    assert any("a/read" in line for line in lines)
    await all_is_there(path)
