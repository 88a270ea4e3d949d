"""Servers that change their tools at any moment: nothing is called with a form that its caller was not shown.

The server (`changing_server`) says for each call which version it ran; the caller says which it was shown.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import attrs
import pytest

from tests.e2e.changing import SURFACES, Changing, Guest, Outcome
from tests.e2e.harness import Daemon, running
from tests.pairwise import at_night
from tests.waiting import eventually


@attrs.frozen
class Kind:
    """A kind of server, in a daemon of its own."""

    era: str = "handshake"
    pages: int = 1
    most: int = 100
    """Most calls in flight."""

    def __str__(self) -> str:
        return f"{self.era}-{self.pages}-{self.most}"


HANDSHAKE, MODERN, IN_PAGES, IN_TURN = Kind(), Kind("modern"), Kind("modern", pages=2), Kind(most=1)
ERAS = [HANDSHAKE, MODERN]
ROUNDS = 5
CHANGES = 30
LOOKS = 0.3
"""How often a client looks again before it calls."""


@attrs.frozen
class Crowd:
    """A client on each surface, which has been shown the tool."""

    server: Changing
    daemon: Daemon
    guests: list[Guest]

    def begin(self, **arguments: Any) -> list[int]:
        """Call with what each was shown last, without waiting."""
        return [guest.begin(**arguments) for guest in self.guests]

    def outcomes(self, numbers: list[int]) -> list[Outcome]:
        """What became of these calls."""
        return [guest.outcome(number) for guest, number in zip(self.guests, numbers, strict=True)]

    def are_refused(self, numbers: list[int]) -> None:
        """These calls are, and their callers shown what there is; that runs."""
        refused = Outcome("ToolChanged", self.server.version)
        assert self.outcomes(numbers) == [refused] * len(SURFACES)
        self.run()

    def run(self) -> None:
        """What each was shown last runs, and is what there is."""
        outcomes = self.outcomes(self.begin())
        assert all(outcome.ran for outcome in outcomes), outcomes
        assert [outcome.version for outcome in outcomes] == [self.server.version] * len(SURFACES)

    def change(self) -> None:
        """Change the tool; returns when it is being listed, or has been."""
        listed = len(self.server.lists)
        self.server.change()
        self.server.wait_listed(listed + 1)

    def status(self) -> dict[str, Any]:
        """The server's."""
        found: dict[str, Any] = self.daemon.ask("status")["servers"]["changing"]
        return found


@pytest.fixture(scope="module")
def kinds() -> Iterator[Callable[[Kind], tuple[Changing, Daemon]]]:
    """A server of each kind and its daemon, one for all tests."""
    with ExitStack() as stack:

        @cache
        def made(kind: Kind) -> tuple[Changing, Daemon]:
            server = stack.enter_context(Changing(era=kind.era, pages=kind.pages))
            return server, stack.enter_context(running(server.config(limits={"inFlight": kind.most})))

        yield made


@pytest.fixture
def crowd(request: pytest.FixtureRequest, kinds: Callable[[Kind], tuple[Changing, Daemon]]) -> Iterator[Crowd]:
    server, daemon = kinds(getattr(request, "param", HANDSHAKE))
    daemon.ready()
    server.forget()
    with ExitStack() as stack:
        guests = [stack.enter_context(Guest(daemon, surface)) for surface in SURFACES]
        assert {guest.shown for guest in guests} == {server.version}
        yield Crowd(server, daemon, guests)
    server.command()
    assert not server.strange()


def each(kinds: list[Kind], *of_each_run: Kind) -> pytest.MarkDecorator:
    """The test is of these kinds of server, on each run of some."""
    return pytest.mark.parametrize("crowd", at_night(kinds, *of_each_run), indirect=True, ids=str)


# --- while it is down ----------------------------------------------------------------------------------------


@each(ERAS, HANDSHAKE)
def test_a_server_that_comes_back_with_another_list_runs_nothing_in_its_old_form(crowd: Crowd) -> None:
    crowd.server.version += 1
    crowd.server.hold("start")
    crowd.server.kill()

    numbers = crowd.begin()
    crowd.server.release("start")

    crowd.are_refused(numbers)


def test_a_call_that_comes_while_a_server_that_is_back_lists_waits_for_that_list(crowd: Crowd) -> None:
    server = crowd.server
    server.hold("list")
    server.version += 1
    listed = len(server.lists)
    server.kill()
    server.wait_listed(listed + 1)

    numbers = crowd.begin()
    server.release("list")

    crowd.are_refused(numbers)


def test_a_server_may_change_at_every_reconnect(crowd: Crowd) -> None:
    for _ in range(ROUNDS):
        crowd.server.version += 1
        crowd.server.kill()
        crowd.are_refused(crowd.begin())
    # An answer may overtake what the server says of its call: each goes through a socket of its own.
    crowd.server.wait_called(ROUNDS * len(SURFACES))
    assert len(crowd.server.calls) == ROUNDS * len(SURFACES)


def test_a_server_that_comes_back_as_it_was_is_called_at_once(crowd: Crowd) -> None:
    epoch = crowd.status()["epoch"]
    for _ in range(3):
        crowd.server.kill()
        crowd.run()
    assert crowd.status()["epoch"] == epoch


# --- while it is listed --------------------------------------------------------------------------------------


@each([HANDSHAKE, Kind(pages=2), IN_PAGES], IN_PAGES)
def test_a_change_during_a_list_is_listed_again_before_anything_is_called(crowd: Crowd) -> None:
    crowd.server.hold("list")
    crowd.change()
    # The list that is under way, or its first page, says what was; the next one, what is.
    crowd.server.change()

    numbers = crowd.begin()
    crowd.server.release("list")

    crowd.are_refused(numbers)


@pytest.mark.parametrize("era", at_night(["handshake", "modern"], "modern"))
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


def test_a_call_is_refused_rather_than_sent_while_a_change_is_announced_and_not_listed(crowd: Crowd) -> None:
    crowd.server.hold("list")
    crowd.change()

    numbers = crowd.begin()
    refused = [guest.first_outcome(number) for guest, number in zip(crowd.guests, numbers, strict=True)]
    assert refused == [Outcome("UpstreamUnavailable", None)] * len(SURFACES)
    assert not crowd.server.calls

    crowd.server.release("list")
    crowd.are_refused(crowd.begin())


# --- in the middle of calls ----------------------------------------------------------------------------------


@each(ERAS, HANDSHAKE)
def test_a_call_in_flight_is_answered_and_the_next_one_refused(crowd: Crowd) -> None:
    before = crowd.server.version
    crowd.server.hold("calls")
    numbers = crowd.begin(hold=True)
    crowd.server.wait_called(len(numbers))
    crowd.change()
    crowd.are_refused(crowd.begin())
    crowd.server.release("calls")

    assert crowd.outcomes(numbers) == [Outcome("", before, before + 1)] * len(SURFACES)
    crowd.run()


@each([IN_TURN], IN_TURN)
@pytest.mark.parametrize("listed_by_then", [True, False], ids=["listed", "announced"])
def test_calls_in_line_are_judged_again_when_their_turn_comes(crowd: Crowd, listed_by_then: bool) -> None:
    before, epoch = crowd.server.version, crowd.status()["epoch"]
    with Guest(crowd.daemon, "full") as first:
        crowd.server.hold("calls")
        held = first.begin(hold=True)
        crowd.server.wait_called(1)
        numbers = crowd.begin()
        eventually(lambda: crowd.status()["inFlight"] == 1 + len(numbers), crowd.daemon.said)
        if not listed_by_then:
            crowd.server.hold("list")
        crowd.change()
        if listed_by_then:
            eventually(lambda: crowd.status()["epoch"] == epoch + 1, crowd.daemon.said)

        crowd.server.release("calls")
        assert first.outcome(held).version == before
        if not listed_by_then:
            crowd.server.release("list")

        crowd.are_refused(numbers)


def test_calls_that_were_sent_together_are_all_refused(crowd: Crowd) -> None:
    """Whoever sends three at once has read the answer to none of them."""
    crowd.change()
    refused = Outcome("ToolChanged", crowd.server.version)
    for guest in crowd.guests:
        numbers = guest.post_all(*[guest.invocation()] * 3)
        assert [guest.outcome(number) for number in numbers] == [refused] * 3
    crowd.run()


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


@each(ERAS, MODERN)
def test_a_server_that_changes_all_the_time_runs_nothing_that_is_known_to_be_stale(crowd: Crowd) -> None:
    seed = random.randrange(10**9)
    witness = Witness()
    over = crowd.server.storm(seed, CHANGES)
    threads = [
        threading.Thread(target=use, args=(guest, witness, seed + number, over))
        for number, guest in enumerate(crowd.guests)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not witness.faults, (seed, witness.faults)
    assert witness.ran, seed
    assert witness.refused, seed
    last = crowd.server.version = crowd.server.version + CHANGES
    for guest in crowd.guests:
        outcomes = [guest.run_form() for _ in range(2)]
        assert outcomes[-1] == Outcome("", last, last), (seed, outcomes)
    # A change may overtake a call that was right when it was sent.
    crowd.server.forget()
