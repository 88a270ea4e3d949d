"""What is said of a server that is not up."""

from __future__ import annotations

import pytest

from daemon.causes import Cause
from daemon.facts import ServerStatus
from daemon.states import ServerState
from daemon.upstreams.access import outlook, unavailable


def test_a_call_that_is_not_sent_is_told_why_since_when_and_when_to_try_again() -> None:
    reason = "exited with status 3"
    status = ServerStatus(
        state=ServerState.BACKOFF, since=5.0, reason=reason, cause=Cause.EXITED, attempt=4, next_retry_at=12.5
    )
    error = unavailable("git", status, 10.0)
    assert error.message == (
        "server git is backoff: exited with status 3. The call was not sent. The next attempt is in 2.5 s."
        " Try again later, or use another tool."
    )
    assert error.details == {
        "server": "git",
        "state": "backoff",
        "reason": reason,
        "cause": "exited",
        "attempt": 4,
        "nextRetryInMs": 2500,
    }


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        (ServerState.FAILED, "until the operator mends it"),
        (ServerState.NEEDS_AUTH, "valid credentials"),
        (ServerState.STARTING, "in a few seconds"),
        (ServerState.QUEUED, "is started before the others"),
        (ServerState.STOPPED, "use another tool"),
    ],
)
def test_what_to_do_depends_on_how_the_server_is(state: ServerState, hint: str) -> None:
    error = unavailable("git", ServerStatus(state=state, since=0.0), 1.0)
    assert f"server git is {state}: not ready yet. The call was not sent." in error.message
    assert hint in error.message
    assert error.details["nextRetryInMs"] is None


def test_who_waits_is_told_how_the_server_is() -> None:
    queued = ServerStatus(state=ServerState.QUEUED, since=0.0, reason="waits for its turn, 3 before it")
    assert outlook("git", queued) == "server git is queued: waits for its turn, 3 before it"
    assert outlook("git", ServerStatus(state=ServerState.STARTING, since=0.0)) == "server git is starting"
