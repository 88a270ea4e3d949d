"""Whatever thirty clients and six servers do: no client is asked for another, and nothing is left open."""

import pytest

from tests.unit.upstreams.asking import play

REQUESTS = 3000
"""What servers ask in one play; `make nightly` plays more."""

MORE = [pytest.param(seed, 5000, marks=pytest.mark.nightly) for seed in (2, 3, 4)]


@pytest.mark.parametrize(("seed", "requests"), [(1, REQUESTS), *MORE])
def test_no_client_is_asked_for_another_each_request_is_answered_once_and_none_is_left(
    seed: int, requests: int
) -> None:
    done = play(requests, seed)
    assert not done.wrong
    assert done.asks >= requests
    # It is not an answer to refuse everything.
    assert done.count["delivered"] > 0.8 * done.asks
    assert done.count["answered"] > 0.5 * done.asks
    assert 0 < done.count["uncertain"] < 0.1 * done.asks


def test_the_play_notices_a_client_that_is_asked_for_another() -> None:
    """Were calls that were given up forgotten at once, the next client would be asked for them."""
    assert play(REQUESTS, remembered=0.0).wrong
