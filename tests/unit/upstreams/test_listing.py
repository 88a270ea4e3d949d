"""A server's list of tools is kept current: on its word, with age, after failures, on an operator's word."""

from contextlib import suppress
from itertools import pairwise

import pytest
import trio
import trio.testing

from daemon.causes import HEALTHY
from daemon.errors import UpstreamUnavailable
from daemon.model import Kind
from daemon.upstreams import server_lists
from daemon.wire.envelope import RemoteError
from tests.unit.upstreams.listing_server import Lists
from tests.waiting import in_time, until

pytestmark = pytest.mark.usefixtures("autojump_clock")


class Scene(Lists):
    """A server's tools alone are kept current."""

    def ask_four_times(self) -> None:
        self.connection.before_answer = lambda: None
        for _ in range(4):
            self.tools.is_asked_for()

    async def start(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.tools.keep, await self.tools.list_now(), self.problems.append)


@pytest.fixture
async def scene(nursery: trio.Nursery) -> Scene:
    """One that has listed, and is kept current."""
    scene = Scene()
    await scene.start(nursery)
    return scene


async def test_a_failure_is_told_without_secrets_and_tried_again_soon(nursery: trio.Nursery) -> None:
    scene = Scene()
    scene.connection.failure = RemoteError(-32000, "s3cret is wrong")
    await scene.start(nursery)
    assert "[redacted] is wrong" in scene.told()[-1].problem
    began = trio.current_time()
    scene.connection.failure = None
    await until(lambda: bool(scene.problems), every=0.05)
    assert scene.problems[0] == HEALTHY
    assert scene.connection.listed[1] - began == server_lists.RELIST_AFTER_FAILURE


async def test_an_empty_list_is_no_failure_and_not_as_it_should_be(nursery: trio.Nursery) -> None:
    scene = Scene()
    scene.lists_tools()
    await scene.start(nursery)
    await until(lambda: len(scene.problems) == 2, every=0.05)
    assert scene.problems == [server_lists.EMPTY, server_lists.EMPTY]
    standing = scene.tools.status
    assert (standing.problem, standing.attempt) == (server_lists.EMPTY, 3)
    assert standing.next_at is not None
    assert 42.0 < standing.next_at <= 42.0 + server_lists.DEBOUNCE + server_lists.RELIST_AFTER_FAILURE
    scene.lists_tools("echo")
    await until(lambda: len(scene.problems) == 3, every=0.05)
    assert scene.problems[-1] == HEALTHY
    assert scene.tools.status == server_lists.ListingStatus()


async def test_a_word_is_obeyed_at_once_and_further_ones_together(scene: Scene) -> None:
    began = trio.current_time()
    for _ in range(4):
        scene.tools.is_asked_for()
    scene.connection.before_answer = scene.ask_four_times
    await until(lambda: len(scene.connection.listed) >= 3, every=0.05)
    assert [at - began for at in scene.connection.listed[1:3]] == [0, server_lists.DEBOUNCE]


async def announce(scene: Scene) -> None:
    """Say all the time that the tools changed."""
    while True:
        scene.tools.is_asked_for()
        await trio.sleep(server_lists.DEBOUNCE * 0.9)


async def test_a_long_list_that_changes_all_the_time_is_read_less_and_less(nursery: trio.Nursery) -> None:
    scene = Scene()
    scene.lists_tools(*(f"t{number}" for number in range(server_lists.LONG + 1)))
    await scene.start(nursery)
    nursery.start_soon(announce, scene)
    await trio.sleep(3 * server_lists.RELIST_AFTER_FAILURE)
    gaps = [later - earlier for earlier, later in pairwise(scene.connection.listed[1:])]
    assert gaps[:3] == pytest.approx(
        [server_lists.LONG_DEBOUNCE, 2 * server_lists.LONG_DEBOUNCE, 4 * server_lists.LONG_DEBOUNCE]
    )
    assert gaps[-1] == pytest.approx(server_lists.RELIST_AFTER_FAILURE)
    # A call of one of its tools needs the list, and gets it.
    count = len(scene.connection.listed)
    await scene.tools.wait_current()
    assert len(scene.connection.listed) > count
    assert server_lists.LONG_DEBOUNCE < server_lists.CURRENT_PATIENCE


async def test_a_long_list_that_was_quiet_is_read_at_once(nursery: trio.Nursery) -> None:
    scene = Scene()
    scene.lists_tools(*(f"t{number}" for number in range(server_lists.LONG + 1)))
    await scene.start(nursery)
    for _ in range(4):
        began = trio.current_time()
        scene.tools.is_asked_for()
        await scene.tools.wait_current()
        assert trio.current_time() == began
        await trio.sleep(2 * server_lists.LONG_DEBOUNCE)


async def test_a_server_that_refuses_what_it_asks_for_is_obeyed_less_and_less(
    scene: Scene, nursery: trio.Nursery
) -> None:
    scene.connection.failure = RemoteError(-32000, "no")
    nursery.start_soon(announce, scene)
    await trio.sleep(4 * server_lists.RELIST_AFTER_FAILURE)
    listed = scene.connection.listed[1:]
    gaps = [later - earlier for earlier, later in pairwise(listed)]
    assert gaps[:3] == pytest.approx(
        [2 * server_lists.DEBOUNCE, 4 * server_lists.DEBOUNCE, 8 * server_lists.DEBOUNCE]
    )
    assert gaps[-1] == pytest.approx(server_lists.RELIST_AFTER_FAILURE)
    # An operator does not wait for that.
    began = trio.current_time()
    assert await scene.tools.refresh()
    assert trio.current_time() - began <= server_lists.DEBOUNCE
    # Once it lists, its word counts as before.
    scene.connection.failure = None
    await trio.sleep(server_lists.RELIST_AFTER_FAILURE + 1)
    *_, before, last = scene.connection.listed
    assert last - before == pytest.approx(server_lists.DEBOUNCE)


async def test_a_word_while_a_list_is_under_way_keeps_it_stale(nursery: trio.Nursery) -> None:
    scene = Scene()
    scene.connection.before_answer = scene.tools.is_asked_for
    await scene.start(nursery)
    assert scene.tools.is_stale
    scene.connection.before_answer = lambda: None
    await until(lambda: not scene.tools.is_stale, every=0.05)


async def test_nobody_waits_longer_than_promised_for_a_list_nor_goes_on_without_it(scene: Scene) -> None:
    held = scene.connection.held[Kind.TOOL] = trio.Event()
    scene.tools.is_asked_for()
    began = trio.current_time()
    with pytest.raises(UpstreamUnavailable, match="has not listed them for 2 s"):
        await scene.tools.wait_current()
    assert trio.current_time() - began == server_lists.CURRENT_PATIENCE
    held.set()


async def test_what_has_changed_and_cannot_be_listed_is_not_called_as_it_was(scene: Scene) -> None:
    scene.connection.failure = RemoteError(-32000, "s3cret is wrong")
    scene.tools.is_asked_for()
    await until(lambda: bool(scene.problems), every=0.05)
    assert scene.tools.is_stale
    with pytest.raises(UpstreamUnavailable, match=r"has not listed them for 2 s \(.*\[redacted\] is wrong"):
        await scene.tools.wait_current()
    # Whoever needs the list has it tried again at once.
    scene.connection.failure = None
    with trio.fail_after(server_lists.RELIST_AFTER_FAILURE):
        while scene.tools.is_stale:
            with suppress(UpstreamUnavailable):
                await scene.tools.wait_current()


async def test_where_changes_never_end_a_list_that_is_later_than_the_question_must_do(
    nursery: trio.Nursery,
) -> None:
    scene = Scene()
    scene.connection.before_answer = scene.tools.is_asked_for
    await scene.start(nursery)
    began = trio.current_time()
    await scene.tools.wait_current()
    assert trio.current_time() - began == server_lists.CURRENT_PATIENCE
    assert scene.tools.is_stale


async def test_a_list_is_current_only_once_it_is_in_the_catalog(scene: Scene) -> None:
    folded = scene.unsettled = trio.Event()
    scene.tools.is_asked_for()
    await until(lambda: len(scene.told()) == 2, every=0.05)
    assert scene.tools.is_stale
    folded.set()
    await in_time(scene.tools.wait_current())
    assert not scene.tools.is_stale


async def test_an_old_list_is_made_anew(nursery: trio.Nursery) -> None:
    scene = Scene(refresh=100)
    await scene.start(nursery)
    await trio.sleep(201)
    first = scene.connection.listed[0]
    assert [at - first for at in scene.connection.listed[1:3]] == [100, 200 + server_lists.DEBOUNCE]


async def test_an_operator_waits_for_a_list_that_began_after_the_word(scene: Scene) -> None:
    assert await in_time(scene.tools.refresh()) == ""
    assert len(scene.connection.listed) == 2
    scene.connection.failure = RemoteError(-1, "broken")
    assert "broken" in await in_time(scene.tools.refresh())
    assert not scene.tools.is_stale, "nothing was announced"


async def test_an_operator_does_not_wait_for_ever(nursery: trio.Nursery) -> None:
    scene = Scene(list=5)
    await scene.start(nursery)
    held = scene.connection.held[Kind.TOOL] = trio.Event()
    assert "no list within" in await scene.tools.refresh()
    held.set()
