"""A key that an operator changes is written, in force, and taken back where the daemon refuses it."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from daemon.config.parse import Plan, load
from daemon.errors import ConfigError, Fault, InvalidArguments, McpdError
from daemon.operators.base import OperatorContext, Refused
from daemon.operators.config_changes import DescribeParams, LazyParams, change, describe, described, lazy
from daemon.setup.settings import Setting
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.operators.stage import FACTS, SESSION, FakeSession, clients_of, operator_context

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


async def test_a_change_is_in_force_or_taken_back_where_the_daemon_refuses_it(config: Path) -> None:
    with pytest.raises(ConfigError, match="not so"):
        await change(context_of(config, "not so"), OFF)
    assert says(config) == WRITTEN
    told: Any = await change(context_of(config), OFF)
    assert says(config) == '{"lazy": false} // mine\n'
    assert (told["file"], told["place"], told["already"]) == (str(config), "$.lazy", False)
    assert told["sections"] == ("lazy",)
    again: Any = await change(context_of(config), OFF)
    assert again["already"]


async def test_a_file_that_cannot_be_written_is_refused_with_what_to_type(config: Path) -> None:
    await trio.Path(config).chmod(0o400)
    with pytest.raises(Refused, match=r"read-only.*`mcpd set . lazy=false --config .*mcpd.json`.*mcpd reload"):
        await change(context_of(config), OFF)


async def test_two_changes_at_a_time_follow_one_another(config: Path) -> None:
    context = context_of(config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(change, context, OFF)
        nursery.start_soon(change, context, Setting(trail=("watch",), value=True))
    assert '"lazy": false' in says(config)
    assert '"watch": true' in says(config)


TEXT = '{"profiles": {"reader": {"surface": "browse", "description": "reads"}}}'


@pytest.fixture
def config_lazy(config: Path) -> Path:
    config.write_text(TEXT)
    return config


def context_of_lazy(config_lazy: Path, *, stubborn: bool = False) -> OperatorContext:
    stage = Stage()
    registry = stage.catalog

    def take() -> None:
        if not stubborn:
            registry.set(attrs.evolve(registry.value, config=load(config_lazy, {})))

    async def reload() -> Plan:
        await trio.lowlevel.checkpoint()
        take()
        return Plan(sections=("lazy",))

    registry.set(attrs.evolve(registry.value, config=load(config_lazy, {})))
    facts = attrs.evolve(FACTS, config=str(config_lazy))
    return operator_context(stage, facts=facts, reload=reload, clients=clients_of(FakeSession(SESSION)))


async def test_all_switches_are_shown_and_an_unknown_profile_is_refused(config_lazy: Path) -> None:
    told: Any = await lazy(context_of_lazy(config_lazy), LazyParams())
    assert (told["lazy"], told["changed"], told["note"]) == (True, None, "")
    both = {"on": True, "categories": None}
    assert told["profiles"] == {
        "default": {**both, "surface": "auto", "configured": "auto", "description": None, "sessions": 1},
        "reader": {**both, "surface": "browse", "configured": "browse", "description": "reads", "sessions": 0},
    }
    with pytest.raises(InvalidArguments, match="reader"):
        await lazy(context_of_lazy(config_lazy), LazyParams(on=False, profile="raeder"))
    assert says(config_lazy) == TEXT


async def test_a_profile_that_is_off_shows_all_and_the_master_switch_counts_more(config_lazy: Path) -> None:
    context = context_of_lazy(config_lazy)
    told: Any = await lazy(context, LazyParams(on=False, profile="reader"))
    assert told["changed"]["place"] == "$.profiles.reader.lazy"
    assert (told["profiles"]["reader"]["on"], told["profiles"]["reader"]["surface"]) == (False, "full")
    assert told["profiles"]["default"]["surface"] == "auto"
    told = await lazy(context, LazyParams(on=False))
    assert {each["surface"] for each in told["profiles"].values()} == {"full"}
    told = await lazy(context, LazyParams(on=True, profile="reader"))
    assert "`mcpd lazy on`" in told["note"]


async def test_an_option_of_the_daemon_counts_more_which_is_said(config_lazy: Path) -> None:
    told: Any = await lazy(context_of_lazy(config_lazy, stubborn=True), LazyParams(on=False))
    assert "--no-lazy" in told["note"]


KEY = ("alpha", "one")


class Daemon:
    """A daemon whose configuration is a file with a comment."""

    def __init__(self, folder: Path, **sections: Any) -> None:
        self.file = folder / "mcpd.json"
        self.reloads = 0
        self.stage = Stage(**sections)
        self.stage.lists("alpha", "one", "two")
        servers = {name: {"command": name} for name in self.stage.upstreams}
        text = json.dumps({"mcpServers": servers, **sections}, indent=2)
        self.file.write_text("// mine\n" + text, encoding="utf-8")
        self.context = operator_context(
            self.stage,
            facts=attrs.evolve(FACTS, config=str(self.file), directory=str(folder)),
            reload=self._reload,
        )

    async def _reload(self) -> Plan:
        self.reloads += 1
        return Plan()

    @property
    def written(self) -> Any:
        first, _, rest = self.file.read_text(encoding="utf-8").partition("\n")
        assert first == "// mine"
        return json.loads(rest)

    async def describe(self, tool: str, text: str | None) -> dict[str, object]:
        return await describe(self.context, DescribeParams(tool, text))


async def test_each_category_that_holds_the_tool_says_it_in_one_write(tmp_path: Path) -> None:
    servers = {"c": "alpha", "d": "beta", "e": "alpha"}
    daemon = Daemon(tmp_path, categories={name: {"server": server} for name, server in servers.items()})
    answer = await daemon.describe("mcp__alpha__one", "It.")
    held = {"server": "alpha", "tools": {"overrides": {"alpha/one": {"description": "It."}}}}
    assert daemon.written["categories"] == {"c": held, "d": {"server": "beta"}, "e": held}
    assert (str(answer["places"]).count("mcpd.json"), daemon.reloads) == (2, 1)
    assert "profiles" not in daemon.written


async def test_what_is_written_in_another_spelling_is_changed_there_and_taken_out(tmp_path: Path) -> None:
    overrides = {"one": {"enabled": True, "description": "old"}}
    daemon = Daemon(tmp_path, categories={"c": {"server": "alpha", "tools": {"overrides": overrides}}})
    assert described(daemon.context.config, KEY, ["c"]) == "old"
    await daemon.describe("alpha/one", None)
    assert daemon.written["categories"]["c"]["tools"]["overrides"] == {"one": {"enabled": True}}


@pytest.mark.parametrize("sections", [{}, {"categories": {"c": {"server": "alpha"}}}])
async def test_what_was_written_for_a_description_goes_with_it(tmp_path: Path, sections: Any) -> None:
    daemon = Daemon(tmp_path, **sections)
    before = daemon.file.read_text(encoding="utf-8")
    await daemon.describe("alpha/one", "It.")
    reread = Daemon(tmp_path, **{**sections, **daemon.written})
    await reread.describe("alpha/one", None)
    assert reread.file.read_text(encoding="utf-8") == before


async def test_nothing_to_take_out_changes_nothing(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    answer = await daemon.describe("alpha/one", None)
    assert (answer["places"], answer["already"], daemon.reloads) == ([], True, 0)
    assert described(daemon.context.config, KEY, ["alpha"]) is None


@cases("tool", "text", "error", "reason")
async def test_what_is_wrong_is_refused(tmp_path: Path, tool: str, text: str, error: str, reason: str) -> None:
    with pytest.raises(McpdError, match=reason) as refused:
        await Daemon(tmp_path).describe(tool, text)
    assert type(refused.value).__name__ == error


async def test_a_file_that_is_not_there_is_refused_with_what_to_type(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    daemon.file.unlink()
    daemon.file.mkdir()
    with pytest.raises(Refused, match=r"`mcpd set \. 'profiles\.default\..*alpha/one\"\]=It\.' --config"):
        await daemon.describe("alpha/one", "It.")
