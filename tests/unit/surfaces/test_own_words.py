"""The instructions of servers: once, where a model first meets their tools; bounded and without hidden text."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from daemon.catalog.loaded import Loaded, Source
from daemon.facts import SelfDescription
from daemon.surfaces.browse import BrowseSurface
from daemon.surfaces.category import CategorySurface
from daemon.surfaces.load import LoadSurface
from daemon.surfaces.search import SearchSurface
from daemon.surfaces.summing import LINES_CHARACTERS, first_instructions, server_lines
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status
from tests.unit.surfaces.samples import act, answer, text_of, view_of

TEXT = "Ask for the branch first.\nNever push."
SAID = attrs.evolve(listed("git", "log", "diff"), said=SelfDescription(instructions=TEXT))
CONFIG = {"mcpServers": servers("git", "quiet")}
UP = after(catalog_of(CONFIG), [status("git"), status("quiet"), SAID, listed("quiet", "hush")])
SMALL = {**CONFIG, "profiles": {"default": {"answerTokens": 500}}}


@pytest.mark.parametrize(
    ("surface", "name", "arguments"),
    [
        (CategorySurface(), "get-category-tools", {"category": "git"}),
        (CategorySurface(), "get-category-tools", {"category": "git", "toolNames": ["log"]}),
        (BrowseSurface(), "get_tools", {"category": "git"}),
        (LoadSurface(), "load_mcp_tool", {"names": ["log"]}),
        (SearchSurface(), "search_tools", {"query": "log"}),
    ],
)
def test_the_answer_that_first_opens_a_server_carries_its_instructions(
    surface: Any, name: str, arguments: dict[str, object]
) -> None:
    told = answer(surface, view_of(UP), name, arguments)
    assert told["meta"]["instructions"] == {"git": TEXT}


def test_the_prose_of_a_search_carries_them_too() -> None:
    assert f"Server git says: {TEXT}" in text_of(
        act(SearchSurface(), view_of(UP), "search_tools", {"query": "log"})
    )


def test_they_are_not_repeated_to_a_client_that_knows_a_tool_of_the_server() -> None:
    git = UP.servers["git"]
    assert git.tools is not None
    shown = attrs.evolve(view_of(UP), shown=lambda key: "x" if key == ("git", "log") else None)
    loaded = view_of(UP, loaded=Loaded().adding([(git.tools["diff"], 1)], Source.MANUAL, 1.0))
    assert first_instructions(view_of(UP), [git])
    assert first_instructions(shown, [git]) == {}
    assert first_instructions(loaded, [git]) == {}


def test_a_server_without_instructions_adds_nothing() -> None:
    told = answer(CategorySurface(), view_of(UP), "get-category-tools", {"category": "quiet"})
    assert "instructions" not in told["meta"]


def test_what_is_hidden_in_them_is_made_visible() -> None:
    catalog = after(
        catalog_of(CONFIG),
        [status("git"), attrs.evolve(SAID, said=SelfDescription(instructions="Be\u202e evil\u200b."))],
    )
    told = first_instructions(view_of(catalog), [catalog.servers["git"]])
    assert told == {"instructions": {"git": "Be\\u{202e} evil\\u{200b}."}}


def test_they_take_their_share_of_an_answer_and_no_more() -> None:
    catalog = after(
        catalog_of(SMALL), [status("git"), attrs.evolve(SAID, said=SelfDescription(instructions="x" * 8000))]
    )
    told: Any = first_instructions(view_of(catalog), [catalog.servers["git"]])
    assert 100 < len(told["instructions"]["git"]) < 500


def test_the_handshake_has_a_line_for_each_server() -> None:
    assert server_lines(view_of(UP)) == "Servers:\n- git: the git server\n- quiet: the quiet server"
    assert server_lines(view_of(catalog_of({}))) == ""


def test_the_lines_of_the_handshake_are_bounded() -> None:
    many = catalog_of({"mcpServers": servers(*(f"s{number}" for number in range(500)))})
    lines = server_lines(view_of(many))
    assert len(lines) < LINES_CHARACTERS + 200
    assert "more" in lines.splitlines()[-1]
