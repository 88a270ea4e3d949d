"""The status of a server from the statuses of its instances."""

from daemon.facts import ServerStatus
from daemon.states import ServerState
from daemon.upstreams.server_instances import overall
from tests.unit.catalog.samples import status_of as status

READY, DORMANT = ServerState.READY, ServerState.DORMANT
BACKOFF, STARTING = ServerState.BACKOFF, ServerState.STARTING
BEFORE = ServerStatus(state=DORMANT, since=1.0)


def test_without_an_instance_that_runs_a_server_is_dormant() -> None:
    assert overall([], BEFORE, run=7, now=9.0) == ServerStatus(
        state=DORMANT, since=1.0, incarnation=7, of_instance=True
    )
    resting = [status(DORMANT), status(ServerState.STOPPING, reason="unused")]
    assert overall(resting, BEFORE, run=7, now=9.0).state is DORMANT


def test_one_that_works_is_enough() -> None:
    down = status(BACKOFF, reason="killed", attempt=3, restarts=2)
    told = overall([down, status(READY, restarts=1)], BEFORE, run=7, now=9.0)
    assert (told.state, told.reason, told.since, told.incarnation, told.restarts) == (READY, "", 9.0, 7, 3)


def test_where_none_works_the_newest_reason_is_told() -> None:
    earlier, later = status(BACKOFF, reason="earlier", since=3.0), status(BACKOFF, reason="later", since=4.0)
    assert overall([later, earlier], BEFORE, run=7, now=9.0).reason == "later"
    assert overall([earlier, status(STARTING)], BEFORE, run=7, now=9.0).state is STARTING
