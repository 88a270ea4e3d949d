"""A tool's description, written into the configuration: where, and what is left as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.config.parse import Plan
from daemon.errors import InvalidArguments, UnknownServer, UnknownTool
from daemon.operators.base import Refused
from daemon.operators.config_changes import DescribeParams, describe, described
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import FACTS, operator_context

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize("name", ["alpha/one", "mcp__alpha__one", "one"])
async def test_a_tool_has_the_names_that_other_commands_take(tmp_path: Path, name: str) -> None:
    assert (await Daemon(tmp_path).describe(name, "It."))["tool"] == "alpha/one"


async def test_without_categories_each_profile_says_it(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    answer = await daemon.describe("alpha/one", " Does one thing. ")
    assert (answer["description"], answer["already"]) == ("Does one thing.", False)
    own = {"toolDescriptionOverrides": {"alpha/one": "Does one thing."}}
    assert daemon.written["profiles"] == {"default": own}
    assert daemon.reloads == 1


async def test_a_category_that_holds_the_tool_says_it(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, categories={"c": {"server": "alpha"}, "d": {"server": "beta"}})
    await daemon.describe("mcp__alpha__one", "It.")
    held = {"server": "alpha", "tools": {"overrides": {"alpha/one": {"description": "It."}}}}
    assert daemon.written["categories"] == {"c": held, "d": {"server": "beta"}}
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


async def test_several_places_are_one_write_and_one_reload(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, categories={"c": {"server": "alpha"}, "d": {"server": "alpha"}})
    answer = await daemon.describe("alpha/one", "It.")
    assert str(answer["places"]).count("mcpd.json") == 2
    assert daemon.reloads == 1


async def test_nothing_to_take_out_changes_nothing(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    answer = await daemon.describe("alpha/one", None)
    assert (answer["places"], answer["already"], daemon.reloads) == ([], True, 0)
    assert described(daemon.context.config, KEY, ["alpha"]) is None


@pytest.mark.parametrize(
    ("tool", "text", "error", "reason"),
    [
        ("three", "x", UnknownTool, "no server has a tool 'three'"),
        ("alpha/oen", "x", UnknownTool, "has no tool 'oen'. Did you mean alpha/one"),
        ("alhpa/one", "x", UnknownServer, "alhpa"),
        ("alpha/one", "  ", InvalidArguments, "1 to 4096 characters"),
        ("alpha/one", "x" * 5000, InvalidArguments, "1 to 4096 characters"),
    ],
)
async def test_what_cannot_be_described_is_refused(
    tmp_path: Path, tool: str, text: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        await Daemon(tmp_path).describe(tool, text)


async def test_a_file_that_is_not_there_is_refused_with_what_to_type(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    daemon.file.unlink()
    daemon.file.mkdir()
    with pytest.raises(Refused, match=r"it changes profiles\.default\..*alpha/one: \"It\.\" there by hand"):
        await daemon.describe("alpha/one", "It.")
