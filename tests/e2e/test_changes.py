"""Servers that change their tools at any moment: nothing is called with a form that its caller was not shown.

The server (`changing_server`) says for each call which version it ran; the caller says which it was shown.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.e2e.changing import SURFACES, Changing, Guest, Outcome
from tests.e2e.harness import Daemon, running
from tests.pairwise import at_night
from tests.waiting import eventually

ERAS = ["handshake", "modern"]
ROUNDS = 5
CHANGES = 30
LOOKS = 0.3
"""How often a client looks again before it calls."""


@contextmanager
def everybody(server: Changing, daemon: Daemon) -> Iterator[list[Guest]]:
    """A client on each surface, which has been shown the tool."""
    with ExitStack() as stack:
        guests = [stack.enter_context(Guest(daemon, surface)) for surface in SURFACES]
        assert {guest.shown for guest in guests} == {server.version}
        yield guests


def changed(version: int) -> list[Outcome]:
    """Every surface's client is refused, and shown that version."""
    return [Outcome("ToolChanged", version)] * len(SURFACES)


def all_run(guests: list[Guest]) -> list[int | None]:
    """What runs when each calls with what it was shown last."""
    outcomes = [guest.run_form() for guest in guests]
    assert all(outcome.ran for outcome in outcomes), outcomes
    return [outcome.version for outcome in outcomes]


# --- while it is down ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", at_night(ERAS, "handshake"))
def test_a_server_that_comes_back_with_another_list_runs_nothing_in_its_old_form(era: str) -> None:
    with Changing(era=era) as server, running(server.config()) as daemon:
        with everybody(server, daemon) as guests:
            server.version = 2
            server.hold("start")
            server.kill()

            numbers = [guest.begin() for guest in guests]
            server.release("start")

            assert [guest.outcome(number) for guest, number in zip(guests, numbers, strict=True)] == changed(2)
            assert all_run(guests) == [2] * len(guests)
        assert not server.strange()


def test_a_call_that_comes_while_a_server_that_is_back_lists_waits_for_that_list() -> None:
    with Changing() as server, running(server.config()) as daemon:
        with everybody(server, daemon) as guests:
            server.hold("list")
            server.version = 2
            listed = len(server.lists)
            server.kill()
            server.wait_listed(listed + 1)

            numbers = [guest.begin() for guest in guests]
            server.release("list")

            assert [guest.outcome(number) for guest, number in zip(guests, numbers, strict=True)] == changed(2)
        assert not server.calls


def test_a_server_may_change_at_every_reconnect() -> None:
    with Changing() as server, running(server.config()) as daemon:
        with everybody(server, daemon) as guests:
            for version in range(2, 2 + ROUNDS):
                server.version = version
                server.kill()
                assert [guest.run_form() for guest in guests] == changed(version)
                assert all_run(guests) == [version] * len(guests)
        # An answer may overtake what the server says of its call: each goes through a socket of its own.
        server.wait_called(ROUNDS * len(SURFACES))
        assert not server.strange()
        assert len(server.calls) == ROUNDS * len(SURFACES)


def test_a_server_that_comes_back_as_it_was_is_called_at_once() -> None:
    with Changing() as server, running(server.config()) as daemon:
        with everybody(server, daemon) as guests:
            for _ in range(3):
                server.kill()
                assert all_run(guests) == [1] * len(guests)
        assert not server.strange()
        assert daemon.ask("status")["servers"]["changing"]["epoch"] == 1


# --- while it is listed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("era", "pages"), at_night([("handshake", 1), ("handshake", 2), ("modern", 2)], ("modern", 2))
)
def test_a_change_during_a_list_is_listed_again_before_anything_is_called(era: str, pages: int) -> None:
    with Changing(era=era, pages=pages) as server, running(server.config()) as daemon:
        with everybody(server, daemon) as guests:
            server.hold("list")
            listed = len(server.lists)
            server.change()
            server.wait_listed(listed + 1)
            # The list that is under way, or its first page, says what was; the next one, what is.
            server.change()

            numbers = [guest.begin() for guest in guests]
            server.release("list")

            assert [guest.outcome(number) for guest, number in zip(guests, numbers, strict=True)] == changed(3)
            assert all_run(guests) == [3] * len(guests)
        assert not server.strange()


@pytest.mark.parametrize("era", at_night(ERAS, "modern"))
def test_a_change_during_the_very_first_list_is_not_missed(era: str) -> None:
    with Changing(era=era) as server:
        server.hold("list")
        with running(server.config()) as daemon:
            server.wait_listed(1)
            server.change()
            server.release("list")
            daemon.ready()
            for surface in SURFACES:
                with Guest(daemon, surface) as guest:
                    # It may still have been shown what was, but that is not called.
                    outcomes = [guest.run_form() for _ in range(2)]
                    assert outcomes[-1].version == 2
        assert not server.strange()


def test_a_call_is_refused_rather_than_sent_while_a_change_is_announced_and_not_listed() -> None:
    with Changing() as server, running(server.config()) as daemon:
        with everybody(server, daemon) as guests:
            server.hold("list")
            listed = len(server.lists)
            server.change()
            server.wait_listed(listed + 1)

            numbers = [guest.begin() for guest in guests]
            refused = [guest.first_outcome(number) for guest, number in zip(guests, numbers, strict=True)]
            assert refused == [Outcome("UpstreamUnavailable", None)] * len(guests)

            server.release("list")
            assert [guest.run_form() for guest in guests] == changed(2)
        assert not server.calls


# --- in the middle of calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize("era", at_night(ERAS, "handshake"))
def test_a_call_in_flight_is_answered_and_the_next_one_refused(era: str) -> None:
    with Changing(era=era) as server, running(server.config()) as daemon:
        with everybody(server, daemon) as guests:
            server.hold("calls")
            numbers = [guest.begin(hold=True) for guest in guests]
            server.wait_called(len(guests))
            listed = len(server.lists)
            server.change()
            server.wait_listed(listed + 1)
            following = [guest.begin() for guest in guests]
            assert [guest.outcome(number) for guest, number in zip(guests, following, strict=True)] == changed(
                2
            )
            server.release("calls")

            under_way = [guest.outcome(number) for guest, number in zip(guests, numbers, strict=True)]
            assert under_way == [Outcome("", 1, 2)] * len(guests)
            assert all_run(guests) == [2] * len(guests)
        assert not server.strange()


@pytest.mark.parametrize("listed_by_then", [True, False], ids=["listed", "announced"])
def test_calls_in_line_are_judged_again_when_their_turn_comes(listed_by_then: bool) -> None:
    with Changing() as server, running(server.config(limits={"inFlight": 1})) as daemon:
        with everybody(server, daemon) as guests, Guest(daemon, "full") as first:
            server.hold("calls")
            held = first.begin(hold=True)
            server.wait_called(1)
            numbers = [guest.begin() for guest in guests]
            wait_in_line(daemon, len(guests))
            listed = len(server.lists)
            if not listed_by_then:
                server.hold("list")
            server.change()
            server.wait_listed(listed + 1)
            if listed_by_then:
                wait_epoch(daemon, 2)

            server.release("calls")
            assert first.outcome(held).version == 1
            if not listed_by_then:
                server.release("list")

            assert [guest.outcome(number) for guest, number in zip(guests, numbers, strict=True)] == changed(2)
            assert all_run(guests) == [2] * len(guests)
        assert not server.strange()


def wait_in_line(daemon: Daemon, count: int) -> None:
    """Until so many calls stand in line, besides the one in flight."""
    eventually(lambda: daemon.ask("status")["servers"]["changing"]["inFlight"] == 1 + count)


def wait_epoch(daemon: Daemon, epoch: int) -> None:
    """Until the catalog has what was listed."""
    eventually(lambda: daemon.ask("status")["servers"]["changing"]["epoch"] == epoch)


def test_calls_that_were_sent_together_are_all_refused() -> None:
    """Whoever sends three at once has read the answer to none of them."""
    with Changing() as server, running(server.config()) as daemon:
        with everybody(server, daemon) as guests:
            listed = len(server.lists)
            server.change()
            server.wait_listed(listed + 1)
            for guest in guests:
                numbers = guest.post_all(*[guest.invocation()] * 3)
                assert [guest.outcome(number) for number in numbers] == [Outcome("ToolChanged", 2)] * 3
            assert all_run(guests) == [2] * len(guests)
        assert not server.strange()


# --- all the time --------------------------------------------------------------------------------------------


class Witness:
    """What is known to have been known: who calls with something older must be refused.

    The server announces before it answers, on the same stream. So whoever has read its answer knows that the
    daemon has read the announcement; and what the daemon has shown to one client, it knows when another calls.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.ran = 0
        self.refused = 0
        self._known = 0
        self._lock = threading.Lock()

    def learn(self, version: int) -> int:
        """This was known to the daemon. Returns the latest that was."""
        with self._lock:
            self._known = max(self._known, version)
            return self._known

    def judge(self, guest: Guest, shown: int, known: int, outcome: Outcome) -> None:
        """A call has ended: `known` is what was known before it was sent."""
        with self._lock:
            self.ran += outcome.ran
            self.refused += not outcome.ran
            if outcome.ran and shown < known:
                self.faults.append(f"{guest.surface}: shown {shown}, known {known}, ran {outcome.version}")
            if outcome.code not in {"", "ToolChanged"}:
                self.faults.append(f"{guest.surface}: {outcome.code}")


def use(guest: Guest, witness: Witness, seed: int, over: threading.Event) -> None:
    """Look and call at random until the storm is over, and until it runs what there is then."""
    chance = random.Random(seed)
    calm = False
    while not calm:
        calm = over.is_set()
        if chance.random() < LOOKS and guest.look():
            witness.learn(guest.shown)
        shown, known = guest.shown, witness.learn(0)
        outcome = guest.run_form()
        witness.judge(guest, shown, known, outcome)
        witness.learn(outcome.announced if outcome.ran else guest.shown)


@pytest.mark.parametrize("era", at_night(ERAS, "modern"))
def test_a_server_that_changes_all_the_time_runs_nothing_that_is_known_to_be_stale(era: str) -> None:
    seed = random.randrange(10**9)
    witness = Witness()
    with Changing(era=era) as server, running(server.config()) as daemon, everybody(server, daemon) as guests:
        over = server.storm(seed, CHANGES)
        threads = [
            threading.Thread(target=use, args=(guest, witness, seed + number, over))
            for number, guest in enumerate(guests)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert not witness.faults, (seed, witness.faults)
        assert witness.ran, seed
        assert witness.refused, seed
        for guest in guests:
            outcomes = [guest.run_form() for _ in range(2)]
            assert outcomes[-1] == Outcome("", 1 + CHANGES, 1 + CHANGES), (seed, outcomes)
