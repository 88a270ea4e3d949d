"""A key that an operator changes is written, in force, and taken back where the daemon refuses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from daemon.config.parse import Plan
from daemon.errors import ConfigError, Fault
from daemon.operators.base import Refused
from daemon.operators.config_changes import change
from daemon.setup.settings import Setting
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import FACTS, operator_context

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.operators.base import OperatorContext

WRITTEN = '{"lazy": true} // mine\n'
OFF = Setting(trail=("lazy",), value=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcpd.json"
    path.write_text(WRITTEN)
    path.chmod(0o600)
    return path


def context_of(config: Path, fault: str = "") -> OperatorContext:
    async def reload() -> Plan:
        await trio.lowlevel.checkpoint()
        if fault:
            raise ConfigError(str(config), [Fault(path="$", message=fault)])
        return Plan(sections=("lazy",))

    return operator_context(Stage(), facts=attrs.evolve(FACTS, config=str(config)), reload=reload)


def says(config: Path) -> str:
    return config.read_text()


async def test_a_change_is_written_and_in_force(config: Path) -> None:
    told: Any = await change(context_of(config), OFF, "mcpd lazy off")
    assert says(config) == '{"lazy": false} // mine\n'
    assert (told["file"], told["place"], told["already"]) == (str(config), "$.lazy", False)
    assert told["sections"] == ["lazy"]
    again: Any = await change(context_of(config), OFF, "mcpd lazy off")
    assert again["already"]


async def test_a_file_that_cannot_be_written_is_refused_with_what_to_type(config: Path) -> None:
    await trio.Path(config).chmod(0o400)
    with pytest.raises(
        Refused, match=r"read-only.*`mcpd lazy off --config .*mcpd.json`.*lazy: false.*mcpd reload"
    ):
        await change(context_of(config), OFF, "mcpd lazy off")


async def test_what_the_daemon_refuses_is_taken_back(config: Path) -> None:
    with pytest.raises(ConfigError, match="not so"):
        await change(context_of(config, "not so"), OFF, "mcpd lazy off")
    assert says(config) == WRITTEN


async def test_two_changes_at_a_time_follow_one_another(config: Path) -> None:
    context = context_of(config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(change, context, OFF, "")
        nursery.start_soon(change, context, Setting(trail=("watch",), value=True), "")
    assert '"lazy": false' in says(config)
    assert '"watch": true' in says(config)
