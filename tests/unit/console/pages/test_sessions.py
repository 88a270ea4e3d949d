"""The page of all sessions."""

from __future__ import annotations

import attrs

from daemon.catalog.loaded import Loaded, LoadedTool, SessionRecord, Source
from daemon.console.pages.session_pages import SESSIONS_PAGE
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.stage import SESSION, FakeArchive, FakeSession, OperatorStage, clients_of

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


async def test_a_session_in_use_does_not_differ_with_the_clock() -> None:
    live = FakeSession(attrs.evolve(SESSION, key="k"))
    context = OperatorStage().context(
        clients=clients_of(live, in_use=[(SessionRecord(key="k", loaded=Loaded(), seen_at=1.0), 1)])
    )
    assert (await values_of(SESSIONS_PAGE, viewer_of(context)))["session-k"]["session"]["seenAt"] is None


async def test_it_says_when_some_may_be_missing() -> None:
    archive = FakeArchive()
    archive.degrade("the disk is full")
    page = await drawn(SESSIONS_PAGE, viewer_of(OperatorStage().context(archive=archive)))
    assert "the disk is full" in page.text
