"""Sessions in use: shared by key, recalled once, judged when tools change, never written over half known."""

from functools import partial

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.catalog.loaded import MAX_KEY, Loaded, LoadedStatus, SessionRecord, Source, Verdict
from daemon.clients.sessions import (
    CALLED_AT_ONCE,
    GRACE,
    JUDGED_AT_ONCE,
    MAX_LEFT,
    RETRY_SECONDS,
    SessionState,
    fault_of_key,
    unload,
)
from daemon.errors import McpdError
from daemon.facts import Switched
from tests.fakes_upstream import Stage, tool, tools_of
from tests.unit.catalog.samples import tool as tool_of

ECHO, ADD = ("alpha", "echo"), ("alpha", "add")


async def joined(stage: Stage, key: str = "k") -> SessionState:
    state = await stage.sessions.recall(key)
    stage.sessions.join(state, "a client")
    return state


def load(stage: Stage, state: SessionState, *names: str) -> bool:
    tools = [(each, 1) for each in tools_of("alpha", *names)]
    return stage.sessions.load(state, tools, Source.MANUAL)


def statuses(state: SessionState) -> list[str]:
    return [str(each.verdict.status) for each in state.loaded.tools.values()]


@pytest.fixture
async def state(stage: Stage) -> SessionState:
    return await joined(stage)


async def test_a_key_that_nobody_knows_is_a_new_session(stage: Stage, state: SessionState) -> None:
    assert stage.memory.records["k"].loaded is state.loaded
    assert state.began is None
    assert load(stage, state, "echo")
    assert stage.memory.records["k"].loaded is state.loaded
    assert stage.memory.records["k"].client == "a client"


async def test_a_grant_ends_when_the_servers_name_means_another_program(stage: Stage) -> None:
    keyed, left, own = await joined(stage), await joined(stage, "left"), stage.sessions.unnamed()
    for each in (keyed, left, own):
        for server in ("alpha", "beta"):
            each.grants.allow(tool_of(server, "echo"), "its user")
    stage.sessions.part(left)
    stage.sessions.end_grants({"beta"})
    for grants in (keyed.grants, (await joined(stage, "left")).grants, own.grants):
        assert [server for server, _tool in grants.current(trio.current_time())] == ["alpha"]


async def test_what_a_session_is_shown_elsewhere_is_unknown_where_daemons_share_it(stage: Stage) -> None:
    stage.memory.shared = True
    state = await joined(stage)
    assert state.began == state.created_at > 0


async def test_a_session_is_recalled_as_it_was_and_judged_by_what_is_now(stage: Stage) -> None:
    load(stage, state := await joined(stage), "echo", "add")
    stage.sessions.part(state)
    assert list(stage.sessions.named) == []
    stage.lists("alpha", tool("echo", description="another"))
    again = await joined(stage)
    assert again is not state
    assert statuses(again) == ["invalid_changed", "invalid_deleted"]
    assert again.began == again.created_at == state.created_at == stage.memory.records["k"].created_at


async def test_all_who_name_a_key_at_once_wait_for_one_recall(stage: Stage, nursery: trio.Nursery) -> None:
    stage.memory.open = trio.Event()
    found: list[SessionState] = []

    async def join() -> None:
        found.append(await joined(stage))

    for _ in range(5):
        nursery.start_soon(join)
    await trio.testing.wait_all_tasks_blocked()
    assert (stage.memory.recalls, found) == (1, [])
    stage.memory.open.set()
    await trio.testing.wait_all_tasks_blocked()
    assert len(found) == 5
    assert len(set(map(id, found))) == 1
    assert stage.memory.recalls == 1


async def test_who_gives_up_on_a_recall_leaves_it_to_the_next(stage: Stage, nursery: trio.Nursery) -> None:
    stage.memory.open = trio.Event()
    impatient = trio.CancelScope()

    async def give_up() -> None:
        with impatient:
            await stage.sessions.recall("k")

    nursery.start_soon(give_up)
    await trio.testing.wait_all_tasks_blocked()
    impatient.cancel()
    await trio.testing.wait_all_tasks_blocked()
    stage.memory.open.set()
    assert (await joined(stage)).whole
    assert stage.memory.recalls == 2


@pytest.mark.parametrize("failure", [McpdError("the disk is gone"), ZeroDivisionError("a bug")])
async def test_a_session_that_cannot_be_recalled_begins_empty_and_is_put_together_later(
    stage: Stage, failure: Exception, autojump_clock: MockClock
) -> None:
    load(stage, old := await joined(stage), "echo")
    stage.sessions.part(old)
    stored = stage.memory.records["k"]
    stage.memory.failure = failure
    state = await joined(stage)
    assert (state.whole, state.began) == (False, 0.0), "it may have been shown anything"
    load(stage, state, "add")
    assert stage.memory.records["k"] is stored, "half a session must not replace a whole one"
    assert stage.memory.parts["k"].loaded is state.loaded, "nobody might ask for it again"
    assert stage.sessions.find("k") is state, "the next try is not due"
    await trio.sleep(RETRY_SECONDS)
    assert stage.sessions.find("k") is None
    stage.memory.failure = None
    assert await stage.sessions.recall("k") is state
    assert list(state.loaded.tools) == [ECHO, ("alpha", "add")]
    assert stage.memory.records["k"].loaded == state.loaded


async def test_what_is_known_in_part_is_used(stage: Stage, autojump_clock: MockClock) -> None:
    load(stage, await joined(stage), "echo")
    stored = stage.memory.records["k"]
    stage.sessions.part(stage.sessions.named["k"])
    stage.memory.records["k"] = attrs.evolve(stored, partial=True)
    state = await joined(stage)
    assert (state.whole, state.began, list(state.loaded.tools)) == (False, 0.0, [ECHO])
    assert not stage.memory.parts
    load(stage, state, "add")
    assert list(stage.memory.parts["k"].loaded.tools) == [ECHO, ("alpha", "add")]
    stage.memory.records["k"] = stored
    await trio.sleep(RETRY_SECONDS)
    assert await stage.sessions.recall("k") is state
    assert state.whole
    assert stage.memory.records["k"].loaded == state.loaded


async def test_what_changes_is_counted_kept_and_told_once(stage: Stage, nursery: trio.Nursery) -> None:
    nursery.start_soon(stage.sessions.run)
    state = await joined(stage)
    load(stage, state, "echo", "add")
    told: list[str] = []
    state.listen(lambda: told.append("told"), "me")
    stage.learn(Switched(off=frozenset({ECHO})))
    await trio.testing.wait_all_tasks_blocked()
    assert statuses(state) == ["invalid_disabled", "valid"]
    stage.sessions.judge(state)
    assert told == ["told"]
    assert stage.tally.invalidations[LoadedStatus.INVALID_DISABLED] == 1
    assert stage.memory.records["k"].loaded is state.loaded
    stage.learn(Switched(off=frozenset({ECHO, ADD})))
    await trio.testing.wait_all_tasks_blocked()
    assert stage.tally.invalidations[LoadedStatus.INVALID_DISABLED] == 2
    stage.learn(Switched(off=frozenset()))
    await trio.testing.wait_all_tasks_blocked()
    assert statuses(state) == ["valid", "valid"]


async def test_every_session_is_judged_however_many_there_are(stage: Stage, nursery: trio.Nursery) -> None:
    states = [stage.sessions.unnamed() for _ in range(2 * JUDGED_AT_ONCE + 1)]
    for state in states:
        load(stage, state, "echo")
    nursery.start_soon(stage.sessions.run)
    await trio.testing.wait_all_tasks_blocked()
    stage.learn(Switched(off=frozenset({("alpha", "")})))
    await trio.testing.wait_all_tasks_blocked()
    assert {status for each in states for status in statuses(each)} == {"invalid_server_disabled"}


async def test_a_session_changed_elsewhere_is_adopted_if_in_use(stage: Stage, state: SessionState) -> None:
    load(stage, state, "echo")
    stage.sessions.adopt(SessionRecord(key="k", loaded=Loaded()))
    assert not state.loaded.tools
    stage.sessions.adopt(SessionRecord(key="stranger", loaded=Loaded()))
    assert list(stage.sessions.named) == ["k"]


async def test_being_used_and_being_left_are_told(stage: Stage, state: SessionState) -> None:
    assert stage.memory.touched == ["k"]
    stage.sessions.part(state)
    assert stage.memory.touched == ["k", "k"]


async def test_the_last_connection_that_leaves_a_session_is_told_of(stage: Stage) -> None:
    first, again = await joined(stage), await joined(stage)
    stage.sessions.part(first)
    assert (stage.left, stage.sessions.users) == ([], {"k": 1})
    stage.sessions.part(again)
    assert (stage.left, stage.sessions.users) == (["k"], {})
    assert (await joined(stage)).identity == "k"
    nameless = stage.sessions.unnamed()
    stage.sessions.part(nameless)
    assert stage.left == ["k", nameless]


async def test_a_session_that_gets_its_key_is_another_one_from_then_on(stage: Stage) -> None:
    stored, listed = stage.sessions.unnamed(), stage.sessions.unnamed()
    stage.sessions.identify(stored, "k")
    stage.sessions.identify(listed, "k", stored=False)
    assert stage.left == [stored, listed]
    assert (stored.identity, listed.identity, listed.key) == ("k", "k", None)
    stage.sessions.part(stored)
    assert stage.left == [stored, listed]
    stage.sessions.part(listed)
    assert stage.left == [stored, listed, "k"]


def test_anything_printable_can_be_a_key_and_what_cannot_is_said() -> None:
    for key in ("k", "x" * MAX_KEY, "/home/me/Projekt ä", "6b1c-…"):
        assert fault_of_key(key) == ""
    wrong: list[object] = ["", "x" * (MAX_KEY + 1), "a\nb", "a\u202eb", "uid 5: x", 7, None, ["k"]]
    for each in wrong:
        assert "session's key" in fault_of_key(each)


async def test_a_session_that_was_left_is_not_written_over_the_one_that_has_its_key_now(stage: Stage) -> None:
    left = await joined(stage)
    load(stage, left, "echo")
    stage.sessions.part(left)
    load(stage, await joined(stage), "add")
    stage.learn(Switched(off=frozenset({ECHO})))
    stage.sessions.judge(left)
    assert statuses(left) == ["invalid_disabled"]
    assert list(stage.memory.records["k"].loaded.tools) == [ECHO, ("alpha", "add")]


async def test_what_others_judge_otherwise_is_not_written_back(stage: Stage, state: SessionState) -> None:
    """Two that see different tools would write for ever."""
    load(stage, state, "echo")
    record = stage.memory.records.pop("k")
    gone = Verdict(status=LoadedStatus.INVALID_DELETED, reason="server alpha no longer has it")
    theirs = record.loaded.judged(lambda _each: gone, 1.0)
    state.listen(lambda: stage.sessions.judge(state), "a connection that looks at once")
    stage.sessions.adopt(attrs.evolve(record, loaded=theirs))
    stage.sessions.judge(state)
    assert statuses(state) == ["valid"]
    assert not stage.memory.records


async def test_who_watches_looks_after_each_change_until_it_leaves(stage: Stage, nursery: trio.Nursery) -> None:
    looks: list[int] = []
    stage.sessions.watchers["a bug for one client"] = partial(divmod, 1, 0)
    watchers = range(2 * CALLED_AT_ONCE + 1)
    for number in watchers:
        stage.sessions.watchers[number] = partial(looks.append, number)
    nursery.start_soon(stage.sessions.run)
    await trio.testing.wait_all_tasks_blocked()
    looks.clear()
    del stage.sessions.watchers[3]
    stage.learn(Switched(off=frozenset({ECHO})))
    await trio.testing.wait_all_tasks_blocked()
    assert looks == [number for number in watchers if number != 3]


async def test_it_is_remembered_for_a_while_what_sessions_were_shown_that_nobody_uses(stage: Stage) -> None:
    shown = tools_of("alpha", "echo")[0]
    for number in range(MAX_LEFT + 1):
        state = await joined(stage, f"k{number}")
        state.shown.add([shown])
        stage.sessions.part(state)
    known = [(await joined(stage, f"k{number}")).shown.hash_of(ECHO) for number in range(3)]
    assert known == [None, shown.schema_hash, shown.schema_hash]


async def test_what_a_session_may_call_stays_for_a_while(stage: Stage, mock_clock: MockClock) -> None:
    (echo,) = tools_of("alpha", "echo")
    state = await joined(stage)
    state.grants.allow(echo, "its user")
    stage.sessions.part(state)
    again = await joined(stage)
    assert again.grants.covers(echo, trio.current_time())
    stage.sessions.part(again)
    mock_clock.jump(GRACE)
    assert not (await joined(stage)).grants


async def test_what_a_session_may_call_is_changed_in_use_or_not(stage: Stage, mock_clock: MockClock) -> None:
    echo, add = tools_of("alpha", "echo", "add")
    stage.sessions.grants.change("k", lambda grants: grants.allow(echo, "an operator"))
    stage.sessions.grants.change("k", lambda grants: grants.allow(add, "an operator"))
    state = await joined(stage)
    assert [state.grants.covers(each, trio.current_time()) for each in (echo, add)] == [True, True]
    stage.sessions.grants.change("k", lambda grants: grants.revoke([ECHO, ADD]))
    assert not state.grants
    # Of a session without a key nobody else knows.
    assert not stage.sessions.unnamed().grants


async def test_what_a_session_in_use_unloads_it_hears_of_once(stage: Stage, state: SessionState) -> None:
    load(stage, state, "echo", "add")
    heard: list[str] = []
    state.listen(lambda: heard.append("changed"), "owner")
    for _ in range(2):
        assert await unload(stage.sessions, stage.memory, "k", [ECHO])
        assert ([*state.loaded.tools], heard) == ([ADD], ["changed"])
        assert [*stage.memory.records["k"].loaded.tools] == [ADD]


async def test_a_session_without_a_key_gives_it_up_and_nothing_is_stored(stage: Stage) -> None:
    state, other = stage.sessions.unnamed(), stage.sessions.unnamed()
    for each in (state, other):
        load(stage, each, "echo")
    for identity in (state.identity, "nobody"):
        assert await unload(stage.sessions, stage.memory, identity, [ECHO])
    assert ([*state.loaded.tools], [*other.loaded.tools], stage.memory.records) == ([], [ECHO], {})


@pytest.mark.parametrize("works", [True, False])
async def test_what_another_daemon_has_stored_is_looked_at_first_and_a_disk_that_fails_is_told(
    stage: Stage, state: SessionState, monkeypatch: pytest.MonkeyPatch, *, works: bool
) -> None:
    load(stage, state, "echo", "add")
    stage.sessions.part(state)
    elsewhere = stage.memory.records.pop("k")

    async def look() -> None:
        stage.memory.keep(elsewhere)

    async def kept(key: str) -> bool:
        return works and key in stage.memory.records

    monkeypatch.setattr(stage.memory, "look", look)
    monkeypatch.setattr(stage.memory, "kept", kept)
    assert await unload(stage.sessions, stage.memory, "k", [ECHO]) is works
    assert [*stage.memory.records["k"].loaded.tools] == [ADD]
