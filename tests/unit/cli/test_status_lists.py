"""Prompts, resources and templates in the status for people, at any width."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.cli.terminal import ROOMY, UNBOUNDED, Screen
from daemon.operators.report_words import MAX_NAMED
from tests.unit.cli.daemons import server
from tests.unit.cli.test_status_view import shown

WELL = {"known": True, "recalled": False, "switchedOff": 0, "quarantined": {}, "hidden": {}, "listingError": ""}


def listing(**changed: Any) -> Any:
    """A server of which something about its prompts is told."""
    return server(prompts=3, lists={"prompts": {**WELL, **changed}})


def test_where_there_is_room_each_kind_that_any_server_has_is_a_column() -> None:
    text = shown({"git": server(prompts=3), "docs": server(resources=1200)}, Screen(width=ROOMY, colour=False))
    head, git, docs = (line.split() for line in text.splitlines()[:3])
    assert head[3:7] == ["tools", "prompts", "resources", "open"]
    assert (git[3:6], docs[3:6]) == (["12", "3", "0"], ["12", "0", "1200"])
    assert "Beside tools" not in text


def test_on_a_small_terminal_they_are_said_below_the_table() -> None:
    text = shown(
        {"git": server(prompts=3), "docs": server(prompts=1, resources=2, templates=1), "no": server()}
    )
    assert "Beside tools: git 3 prompts; docs 1 prompt, 2 resources, 1 template." in text
    assert "prompts" not in text.splitlines()[0]


@pytest.mark.parametrize("width", [80, ROOMY, UNBOUNDED])
def test_a_server_with_tools_alone_looks_as_before(width: int) -> None:
    screen = Screen(width=width, colour=False)
    plain = shown({"git": server()}, screen)
    assert plain == shown({"git": server(prompts=0, resources=0, templates=0, lists={"prompts": WELL})}, screen)


def test_what_is_wrong_with_a_list_is_told() -> None:
    text = shown(
        {"git": listing(listingError="timed out", quarantined={"bad": "no name"}, hidden={"odd": "U+202E"})}
    )
    assert "its prompts could not be listed: timed out" in text
    assert "prompt bad is not offered: no name" in text
    assert "prompt odd has U+202E: spelt out for models" in text


def test_of_many_faults_some_are_named_and_the_rest_is_counted() -> None:
    text = shown({"git": listing(quarantined={f"p{number}": "no name" for number in range(MAX_NAMED + 5)})})
    assert text.count("is not offered: no name") == MAX_NAMED
    assert "5 more of its prompts are not offered: `mcpd status --json` has them" in text
