"""The page of one session: what it has loaded and why that is not valid any more; taken away, moved."""

import attrs
import pytest

from daemon.catalog.loaded import Loaded, LoadedTool, SessionRecord, Source
from daemon.clients.sessions import Grants, SessionState
from daemon.console.pages.session_pages import SESSION_ACTIONS, SESSION_PAGE, SESSIONS_PAGE
from daemon.errors import InvalidArguments
from daemon.operators.base import OperatorContext
from tests.fakes_upstream import Stage
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.stage import (
    SESSION,
    FakeArchive,
    FakeSession,
    OperatorStage,
    clients_of,
    operator_context,
)

ACTS = {each.path.rpartition("/")[2]: each.act for each in SESSION_ACTIONS}
LOADED = Loaded(
    {
        ("alpha", name): LoadedTool(key=("alpha", name), schema_hash="h", epoch=1, source=Source.AUTO, at=5.0)
        for name in ("echo", "a/b<i>")
    }
)


def context_of() -> OperatorContext:
    """Connection 3, which has no key, and a kept session `k` that nobody uses."""
    live = FakeSession(attrs.evolve(SESSION, key=None, own=SessionState("3", LOADED), instances=("beta#3",)))
    return operator_context(
        Stage(profiles={"default": {}, "review": {}}),
        archive=FakeArchive([SessionRecord(key="k", loaded=LOADED, seen_at=9.0)]),
        clients=clients_of(live, grants={"k": Grants()}),
    )


async def test_each_loaded_tool_has_its_status_and_the_reason() -> None:
    page = await drawn(SESSION_PAGE, viewer_of(context_of(), session="#3"))
    assert page.is_harmless()
    assert "server alpha has changed it since it was loaded" in page.text
    assert "server alpha no longer has it" in page.text
    assert "its server no longer has it" in page.text
    assert "It can be called again once it is loaded again, with the new schema." in page.text
    assert {"/ui/tools/alpha/a%2Fb%3Ci%3E", "/ui/servers/beta"} <= {*page.links}
    viewer = viewer_of(context_of(), session="#3", may_change=False)
    assert (await drawn(SESSION_PAGE, viewer)).forms == []


async def test_a_session_is_moved() -> None:
    context = context_of()
    told = await ACTS["move"](viewer_of(context, key="#3"), {"profile": "review"})
    assert told == "session #3, no key: its connection has profile review now"
    told = await ACTS["move"](viewer_of(context, key="k"), {"profile": "review"})
    assert told == "session k: no client is connected; the next one gets profile review now"
    told = await ACTS["revoke"](viewer_of(context, session="k"), {})
    assert told == "session k: nothing is allowed beyond its profile"
    with pytest.raises(InvalidArguments, match="no profile is named"):
        await ACTS["move"](viewer_of(context, key="k"), {"profile": "gone"})


# --- the page of all sessions --------------------------------------------------------------------------------


KEY = "/home/me/a b?#"
HELD = LoadedTool(key=("alpha", "gone"), schema_hash="h", epoch=1, source=Source.MANUAL, at=5.0)


async def test_connections_and_kept_sessions_are_shown() -> None:
    live = FakeSession(attrs.evolve(SESSION, key=None, client=HOSTILE, workspace=HOSTILE))
    record = SessionRecord(key=KEY, loaded=Loaded({HELD.key: HELD}), client=HOSTILE, seen_at=7.0)
    context = OperatorStage().context(clients=clients_of(live), archive=FakeArchive([record]))
    page = await drawn(SESSIONS_PAGE, viewer_of(context))
    assert page.is_harmless()
    assert {"/ui/sessions/%233", "/ui/sessions/%2Fhome%2Fme%2Fa%20b%3F%23"} <= {*page.links}
    values = await values_of(SESSIONS_PAGE, viewer_of(context))
    kept = values["session-%2Fhome%2Fme%2Fa%20b%3F%23"]["session"]
    assert (kept["loaded"], kept["invalid"], kept["seenAt"]) == (1, 1, 7)


async def test_it_says_when_some_may_be_missing() -> None:
    archive = FakeArchive()
    archive.degrade("the disk is full")
    page = await drawn(SESSIONS_PAGE, viewer_of(OperatorStage().context(archive=archive)))
    assert "the disk is full" in page.text
