"""The switches of loading on demand, as an operator sees and throws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from daemon.config.parse import Plan, load
from daemon.errors import InvalidArguments
from daemon.operators.config_changes import LazyParams, lazy
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import FACTS, SESSION, FakeSession, clients_of, operator_context

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.operators.base import OperatorContext

TEXT = '{"profiles": {"reader": {"surface": "browse", "description": "reads"}}}'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcpd.json"
    path.write_text(TEXT)
    path.chmod(0o600)
    return path


def context_of(config: Path, *, stubborn: bool = False) -> OperatorContext:
    stage = Stage()
    registry = stage.catalog

    def take() -> None:
        if not stubborn:
            registry.set(attrs.evolve(registry.value, config=load(config, {})))

    async def reload() -> Plan:
        await trio.lowlevel.checkpoint()
        take()
        return Plan(sections=("lazy",))

    registry.set(attrs.evolve(registry.value, config=load(config, {})))
    facts = attrs.evolve(FACTS, config=str(config))
    return operator_context(stage, facts=facts, reload=reload, clients=clients_of(FakeSession(SESSION)))


async def test_all_switches_are_shown_and_nothing_is_written(config: Path) -> None:
    told: Any = await lazy(context_of(config), LazyParams())
    assert (told["lazy"], told["changed"], told["note"]) == (True, None, "")
    assert told["profiles"] == {
        "default": {
            "on": True,
            "surface": "auto",
            "configured": "auto",
            "categories": None,
            "description": None,
            "sessions": 1,
        },
        "reader": {
            "on": True,
            "surface": "browse",
            "configured": "browse",
            "categories": None,
            "description": "reads",
            "sessions": 0,
        },
    }


async def test_a_profile_that_is_switched_off_shows_everything(config: Path) -> None:
    told: Any = await lazy(context_of(config), LazyParams(on=False, profile="reader"))
    assert told["changed"]["place"] == "$.profiles.reader.lazy"
    assert (told["profiles"]["reader"]["on"], told["profiles"]["reader"]["surface"]) == (False, "full")
    assert told["profiles"]["default"]["surface"] == "auto"


async def test_the_master_switch_counts_more_which_is_said(config: Path) -> None:
    context = context_of(config)
    told: Any = await lazy(context, LazyParams(on=False))
    assert {each["surface"] for each in told["profiles"].values()} == {"full"}
    told = await lazy(context, LazyParams(on=True, profile="reader"))
    assert "`mcpd lazy on`" in told["note"]


async def test_an_option_of_the_daemon_counts_more_which_is_said(config: Path) -> None:
    told: Any = await lazy(context_of(config, stubborn=True), LazyParams(on=False))
    assert "--no-lazy" in told["note"]


async def test_a_profile_that_is_not_there_is_refused(config: Path) -> None:
    with pytest.raises(InvalidArguments, match="reader"):
        await lazy(context_of(config), LazyParams(on=False, profile="raeder"))
