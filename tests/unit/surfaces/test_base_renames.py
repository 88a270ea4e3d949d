"""A tool that its server has renamed is found under its old name, and runs only as what was shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.catalog.loaded import Loaded, LoadedStatus, Source, Verdict
from daemon.errors import ToolChanged, ToolNotLoaded, UnknownTool
from daemon.surfaces.load import LoadSurface
from daemon.surfaces.surface import Forward, Loading, Reply, is_as_shown, renamed
from tests.unit.catalog.samples import after, catalog_of, listed, tool
from tests.unit.surfaces.samples import act, answer, refused, view_of

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog
    from daemon.model import Tool
    from daemon.surfaces.surface import View

SURFACE = LoadSurface()
CONFIG: dict[str, Any] = {
    "mcpServers": {"git": {"command": "git"}},
    "profiles": {"auto": {"autoLoad": True}},
}
LOG = tool("git", "git_log", description="Shows the log.")
HISTORY = tool("git", "history", description="Shows the log.")
OTHER = tool("git", "history", description="Shows something else.")
OLD, NEW = ("git", "git_log"), ("git", "history")
BEFORE = after(catalog_of(CONFIG), [listed("git", LOG, "add")])
MOVED = after(BEFORE, [listed("git", HISTORY, "add")])
DIFFERS = after(MOVED, [listed("git", OTHER, "add")])


def loaded(each: Tool = LOG, verdict: Verdict | None = None) -> Loaded:
    made = Loaded().adding([(each, 1)], Source.MANUAL, 1.0)
    if verdict is None:
        return made
    return Loaded({key: attrs.evolve(known, verdict=verdict) for key, known in made.tools.items()})


def seen(catalog: Catalog = MOVED, profile: str = "default", *, of: Loaded | None = None) -> View:
    return view_of(catalog, profile, loaded=loaded() if of is None else of)


def test_the_old_name_leads_to_the_new_one_until_it_is_somebodys_again() -> None:
    found = renamed(seen(), "git_log")
    assert found is not None
    assert (found[0], found[1].key) == (OLD, NEW)
    assert renamed(seen(), "mcp__git__git_log") is not None
    assert renamed(seen(), "history") is None
    assert renamed(seen(BEFORE), "git_log") is None
    assert renamed(seen(after(MOVED, [listed("git", HISTORY, LOG)])), "git_log") is None
    assert renamed(seen(after(MOVED, [listed("git", "add")])), "git_log") is None


def test_a_session_knows_a_rename_from_an_earlier_life() -> None:
    fresh = after(catalog_of(CONFIG), [listed("git", HISTORY, "add")])
    assert renamed(seen(fresh), "git/git_log") is None
    known = Verdict(status=LoadedStatus.INVALID_RENAMED, reason="r", renamed_to="history")
    found = renamed(seen(fresh, of=loaded(verdict=known)), "git/git_log")
    assert found is not None
    assert found[1].key == NEW


def test_only_what_was_shown_or_loaded_and_has_another_name_alone_is_as_it_was() -> None:
    assert is_as_shown(seen(), OLD, HISTORY)
    assert not is_as_shown(seen(), OLD, OTHER)
    assert not is_as_shown(seen(of=Loaded()), OLD, HISTORY)
    shown = attrs.evolve(seen(of=Loaded()), shown={OLD: LOG.schema_hash}.get)
    assert is_as_shown(shown, OLD, HISTORY)
    other = attrs.evolve(seen(), shown={OLD: OTHER.schema_hash}.get)
    assert not is_as_shown(other, OLD, HISTORY)


def test_the_refusal_of_the_old_name_holds_the_call_that_loads_the_new_one() -> None:
    error = refused(SURFACE, seen(DIFFERS), "git_log", {}, UnknownTool)
    assert error.message == (
        "server git has renamed 'git_log': it is called history now. Load it:"
        ' load_mcp_tool({"names":["history"]}), then call history.'
    )
    assert error.details["renamedTo"] == "history"
    load: Any = error.details["load"]
    assert list(answer(SURFACE, seen(DIFFERS), load["name"], load["arguments"])["tools"]) == ["history"]


def test_what_is_loaded_under_its_new_name_is_called_by_it() -> None:
    both = loaded().adding([(OTHER, 2)], Source.MANUAL, 2.0)
    error = refused(SURFACE, seen(DIFFERS, of=both), "git_log", {}, UnknownTool)
    assert error.message.endswith("It is loaded: call history.")


def test_the_old_name_loads_the_new_tool() -> None:
    reply = act(SURFACE, seen(), "load_mcp_tool", {"names": ["git_log"]})
    assert isinstance(reply, Reply)
    assert reply.loading == Loading(tools=(NEW,))


@pytest.mark.parametrize("profile", ["default", "auto"])
def test_a_call_to_the_old_name_runs_loads_the_new_one_and_says_so_once(profile: str) -> None:
    action = act(SURFACE, seen(profile=profile), "git_log", b'{"n":1}')
    assert isinstance(action, Forward)
    assert (action.server, action.name, bytes(action.arguments)) == ("git", "history", b'{"n":1}')
    assert action.loading == Loading(tools=(NEW,), source=Source.AUTO)
    assert action.convert is not None
    told = {"type": "text", "text": "server git has renamed 'git_log': it is called history now."}
    said = json.loads(action.convert(b'{"content":[{"type":"x"}],"structuredContent":{"a":1.50}}'))
    assert said == {"content": [{"type": "x"}, told], "structuredContent": {"a": 1.5}}
    assert action.convert(b'{"task":{}}') == b'{"task":{}}'
    both = loaded().adding([(HISTORY, 2)], Source.AUTO, 2.0)
    again = act(SURFACE, seen(profile=profile, of=both), "git_log", b"{}")
    assert isinstance(again, Forward)
    assert (again.name, again.loading, again.convert) == ("history", None, None)


def test_with_auto_load_nothing_runs_that_is_not_what_was_shown() -> None:
    assert (
        "it is called history now"
        in refused(SURFACE, seen(DIFFERS, "auto"), "git_log", {}, UnknownTool).message
    )
    refused(SURFACE, seen(MOVED, "auto", of=Loaded()), "git_log", {}, UnknownTool)


def test_other_refusals_are_what_they_were() -> None:
    refused(SURFACE, seen(BEFORE, of=Loaded()), "git_log", {}, ToolNotLoaded)
    new = after(BEFORE, [listed("git", tool("git", "git_log", description="New."), "add")])
    refused(SURFACE, seen(new), "git_log", {}, ToolChanged)
