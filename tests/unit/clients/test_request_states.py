"""States that are given to clients: who may bring them back, how often, how long, and how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mcp_types
import pytest
import trio
from msgspec import Raw

from daemon.clients.input_required import (
    MAX_HELD_BYTES,
    MAX_OF_CLIENT,
    MAX_OF_SERVER,
    MAX_STATES,
    PREFIX,
    TTL,
    RequestStates,
    Round,
    WaitingCall,
    asking_result,
    fits,
    state_in,
)
from daemon.errors import UpstreamUnavailable
from daemon.surfaces.surface import Forward
from daemon.wire.requests import PeerRequest
from tests.unit.cases import cases
from tests.unit.clients.inputs import QUESTION, Told, raw

if TYPE_CHECKING:
    from collections.abc import Hashable

    from trio.testing import MockClock


class Waits(WaitingCall[None]):
    """A call that waits."""

    def __init__(
        self, owner: bytes = b"me", client: Hashable = 1, server: str | None = "s", held: int = 0
    ) -> None:
        self.ended: list[str] = []
        super().__init__(
            owner, client, lambda _retry, _given: True, self.ended.append, server=server, held=held
        )


async def test_a_state_is_good_for_its_owner_until_it_is_used() -> None:
    states, waits = RequestStates(), Waits()
    state = states.give(waits)
    assert state is not None
    assert state.startswith(PREFIX)
    assert states.find(state, b"me") is waits
    # Somebody else's attempt does not use it up.
    assert states.find(state, b"you") is None
    assert states.find(state, b"me") is waits
    states.use(state)
    assert states.find(state, b"me") is None
    assert not len(states)


async def test_no_two_states_are_alike_and_none_can_be_guessed() -> None:
    states = RequestStates()
    given = {states.give(Waits(client=number, server=str(number))) for number in range(500)}
    assert len(given) == 500
    assert all(state is not None and len(state) >= len(PREFIX) + 256 / 6 for state in given)


async def test_what_expires_is_given_up_once_and_the_rest_lives_on(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    states, first, second = RequestStates(), Waits(), Waits()
    flushed: list[float] = []
    nursery.start_soon(states.run, lambda: flushed.append(trio.current_time()))
    old = states.give(first)
    await trio.sleep(TTL / 2)
    new = states.give(second)
    assert old is not None
    assert new is not None
    await trio.sleep(TTL / 2)
    assert states.find(old, b"me") is None, "also before the next look"
    await trio.sleep(2)
    assert first.ended == [f"the client has not answered within {TTL:g} s"]
    assert flushed
    assert states.find(new, b"me") is second
    await trio.sleep(TTL)
    assert (len(first.ended), len(second.ended), len(states)) == (1, 1, 0)
    # Nothing is looked at while there is nothing; then again.
    count = len(flushed)
    await trio.sleep(100)
    assert len(flushed) == count
    states.give(first)
    await trio.sleep(TTL + 2)
    assert len(first.ended) == 2


async def test_there_are_so_many_of_a_client_of_a_server_and_in_all() -> None:
    states = RequestStates()
    for number in range(MAX_OF_CLIENT):
        assert states.give(Waits(client="a", server=f"s{number}"))
    assert states.give(Waits(client="a", server="other")) is None
    for number in range(MAX_OF_SERVER):
        assert states.give(Waits(client=f"c{number}", server="t"))
    assert states.give(Waits(client="b", server="t")) is None
    for number in range(MAX_STATES - len(states)):
        assert states.give(Waits(client=number, server=str(number)))
    assert states.give(Waits(client="new", server="new")) is None
    states.leave("a")
    assert states.give(Waits(client="new", server="new"))


async def test_answers_that_wait_have_so_many_bytes_together() -> None:
    states = RequestStates()
    states.give(Waits(held=MAX_HELD_BYTES - 10))
    assert states.may_hold(10)
    assert not states.may_hold(11)


def test_what_is_written_is_valid_for_the_sdk() -> None:
    requests = {
        "a": PeerRequest("elicitation/create", raw(QUESTION), Told()),
        "b": PeerRequest("roots/list", None, Told()),
    }
    found = mcp_types.InputRequiredResult.model_validate_json(asking_result(requests, "s"))
    assert set(found.input_requests or ()) == {"a", "b"}
    assert found.request_state == "s"


@cases("method", "response", "good")
def test_an_answer_has_what_its_method_asks_for(method: str, response: object, good: bool) -> None:
    assert fits(method, raw(response)) is good


def test_a_state_is_a_text() -> None:
    assert state_in({}) is None
    assert state_in({"requestState": raw("s")}) == "s"
    assert state_in({"requestState": Raw(rb'"\u0073"')}) == "s", "however it is written"
    for other in (None, 7, ["s"]):
        assert state_in({"requestState": raw(other)}) is None


def test_what_was_given_for_one_tool_goes_to_no_other() -> None:
    given = Round("alpha", b'"name":"echo",', "alpha/echo")

    def forward(server: str, tool: str) -> Forward:
        return Forward(server=server, name="", head=b'"name":"%b",' % tool.encode(), arguments=b"{}", label="")

    given.require(forward("alpha", "echo"))
    for elsewhere in (forward("beta", "echo"), forward("alpha", "delete")):
        with pytest.raises(UpstreamUnavailable, match=r"alpha/echo is .* not sent again"):
            given.require(elsewhere)
