"""Servers that are down, as models are told of them that are given servers' own tools."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from daemon.causes import Cause, Remedy
from daemon.states import ServerState
from daemon.surfaces.full import LINES_CHARACTERS, STATUS, FullSurface, ItselfSurface
from daemon.surfaces.surface import Forward, Reply
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status
from tests.unit.surfaces.samples import act, listed_names, view_of

SURFACE = FullSurface()
WANTS = Remedy("It wants DATABASE_URL.", "Set it in `env`.", by_words=True)
LOGIN = Remedy("h:443 wants an OAuth login.", "`mcpd login notion`.")
BEFORE = catalog_of({"mcpServers": servers("git", "notion", "broken")})
UP = after(BEFORE, [status("git"), listed("git", "log")])
CRASHES: dict[str, Any] = {"cause": Cause.EXITED, "reason": "exited with status 1", "remedy": WANTS}
DOWN = after(
    UP,
    [
        status("notion", ServerState.NEEDS_AUTH, attempt=1, cause=Cause.LOGIN_NEEDED, remedy=LOGIN),
        status("broken", ServerState.CRASHLOOP, attempt=5, **CRASHES),
    ],
)
LINES = (
    "Down now: notion, broken.\n"
    "- notion: h:443 wants an OAuth login. Tell the user to run `mcpd login notion`, then try again.\n"
    "- broken: It wants DATABASE_URL. What helps (tell the user): Set it in `env`."
)


def test_the_instructions_and_a_tool_name_each_server_that_is_down_with_cause_and_remedy() -> None:
    view = view_of(DOWN)
    assert SURFACE.instructions(view) == f"The tools of these MCP servers: git, notion, broken.\n{LINES}"
    first, *others = SURFACE.list_tools(view)
    tool = json.loads(first)
    assert tool["name"] == STATUS
    assert tool["description"].endswith(LINES)
    assert tool["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert others == list(view.offer.listing)
    assert len(SURFACE.listed(view)) == len(others)


def test_the_tool_answers_with_what_is_known_and_says_so_when_all_is_well_again() -> None:
    reply = act(SURFACE, view_of(DOWN), STATUS, {})
    assert isinstance(reply, Reply)
    answer = json.loads(reply.result)
    assert "- broken (crashloop): It wants DATABASE_URL." in answer["content"][0]["text"]
    told = answer["structuredContent"]["unavailableServers"]
    assert list(told) == ["notion", "broken"]
    assert (told["broken"]["happened"], told["broken"]["helps"]) == (WANTS.happened, WANTS.helps)

    well = after(DOWN, [status("notion"), status("broken")])
    assert listed_names(SURFACE, view_of(well)) == ["log"]
    reply = act(SURFACE, view_of(well), STATUS, {})
    assert isinstance(reply, Reply)
    assert "Every MCP server is up" in json.loads(reply.result)["content"][0]["text"]


@pytest.mark.parametrize("state", [ServerState.STARTING, ServerState.QUEUED, ServerState.BACKOFF])
def test_a_server_that_is_tried_again_stays_in_the_list_unchanged(state: ServerState) -> None:
    again = after(DOWN, [status("broken", state, attempt=5, incarnation=6, **CRASHES)])
    assert SURFACE.list_tools(view_of(again)) == SURFACE.list_tools(view_of(DOWN))


@pytest.mark.parametrize(
    ("cause", "remedy", "is_told"),
    [
        (Cause.EXITED, attrs.evolve(WANTS, happened="It wants DATABASE_URL (pid 7)."), False),
        (Cause.EXITED, Remedy("It failed with exit status 1.", "See its logs."), False),
        (Cause.EXITED, Remedy("It wants TOKEN.", "Set TOKEN.", by_words=True), True),
        (Cause.REFUSED, WANTS, False),
        (Cause.REFUSED, Remedy("Nobody listens.", "Start it."), True),
    ],
)
def test_a_try_that_fails_alike_leaves_the_list_as_it_is(
    cause: Cause, remedy: Remedy, *, is_told: bool
) -> None:
    again = after(DOWN, [status("broken", ServerState.CRASHLOOP, attempt=6, cause=cause, remedy=remedy)])
    assert (SURFACE.list_tools(view_of(again)) != SURFACE.list_tools(view_of(DOWN))) == is_told
    anew = after(again, [status("broken", ServerState.CRASHLOOP, attempt=1, cause=cause, remedy=remedy)])
    assert remedy.happened in SURFACE.instructions(view_of(anew))


def test_neither_a_first_start_nor_a_single_end_of_a_server_with_tools_changes_the_list() -> None:
    starting = after(UP, [status("broken", ServerState.STARTING)])
    once = after(UP, [status("git", ServerState.BACKOFF, attempt=1, **CRASHES)])
    for catalog in (starting, once):
        assert listed_names(SURFACE, view_of(catalog)) == ["log"]
    twice = after(UP, [status("git", ServerState.BACKOFF, attempt=2, **CRASHES)])
    parked = after(UP, [status("git", ServerState.NEEDS_AUTH, attempt=1, cause=Cause.LOGIN_NEEDED)])
    for catalog in (twice, parked):
        assert listed_names(SURFACE, view_of(catalog)) == [STATUS, "log"]


def test_a_server_that_is_up_and_lists_nothing_is_named() -> None:
    mute = after(UP, [status("broken", ServerState.DEGRADED, cause=Cause.LIST_REFUSED, reason="it refuses")])
    assert "- broken: it refuses." in SURFACE.instructions(view_of(mute))


def test_a_tool_of_that_name_of_a_server_is_that_servers() -> None:
    catalog = after(DOWN, [listed("git", STATUS)])
    assert listed_names(SURFACE, view_of(catalog)) == [STATUS]
    assert isinstance(act(SURFACE, view_of(catalog), STATUS, {}), Forward)


def test_a_client_that_has_chosen_servers_is_told_of_those() -> None:
    view = view_of(DOWN)
    view = attrs.evolve(view, catalog=view.services.offers.choices.of(DOWN, ("notion",)))
    said = ItselfSurface().instructions(view)
    assert said.startswith(
        "notion: down now. h:443 wants an OAuth login. Tell the user to run `mcpd login notion`"
    )
    assert b"broken" not in ItselfSurface().list_tools(view)[0]


def test_however_many_are_down_the_lines_are_short_and_foreign_words_are_legible() -> None:
    names = [f"s{number}" for number in range(40)]
    long = Remedy("It said \u202e" + "x" * 600, "Nothing.", by_words=True)
    facts = [status(name, ServerState.FAILED, attempt=1, cause=Cause.EXITED, remedy=long) for name in names]
    said = SURFACE.instructions(view_of(after(catalog_of({"mcpServers": servers(*names)}), facts)))
    assert len(said) < LINES_CHARACTERS + 400
    assert "and 20 more." in said
    assert "\u202e" not in said
