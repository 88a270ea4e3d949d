"""What a run raised, as a kind of end and as a reason; nothing that it raises passes the boundary."""

from __future__ import annotations

import pytest
import trio

from daemon.causes import Cause, Reason
from daemon.errors import CannotStart, ConnectionLost, NeedsAuth, RunError, StartTimeout
from daemon.supervision.backoff import Ending
from daemon.supervision.lifecycle import ENDED, contained, ending_of, reason_of

KINDS: list[tuple[BaseException | None, Ending]] = [
    (None, Ending.NORMAL),
    (ConnectionLost("exited with status 0", Cause.ENDED), Ending.NORMAL),
    (ConnectionLost("it hung up"), Ending.CRASHED),
    (ConnectionLost("exited with status 1", Cause.EXITED, status=1), Ending.CRASHED),
    (ConnectionLost("exited with status 78", Cause.EXITED, status=78), Ending.CANNOT_START),
    (ConnectionLost("exited with status 127", Cause.EXITED, status=127), Ending.CANNOT_START),
    (ConnectionLost("HTTP 403", Cause.FORBIDDEN), Ending.NEEDS_AUTH),
    (ConnectionLost("the certificate has expired", Cause.TLS_EXPIRED), Ending.CANNOT_START),
    (StartTimeout("no answer"), Ending.CRASHED),
    (KeyError("bug"), Ending.CRASHED),
    (CannotStart("no such command"), Ending.CANNOT_START),
    (NeedsAuth("401"), Ending.NEEDS_AUTH),
]


@pytest.mark.parametrize(("error", "ending"), KINDS, ids=str)
def test_the_cause_decides_what_kind_of_end_it_was(error: BaseException | None, ending: Ending) -> None:
    assert ending_of(reason_of(error)) is ending


def test_the_reason_is_in_words_and_names_a_fault_of_ours_as_one() -> None:
    assert reason_of(None) == ENDED
    assert reason_of(StartTimeout("no answer", seconds=3.0)) == Reason(
        "no answer", Cause.HANDSHAKE_TIMEOUT, {"seconds": 3.0}
    )
    ours = reason_of(KeyError("bug"))
    assert (ours.text, ours.cause) == ("mcpd's own fault: KeyError: 'bug'", Cause.INTERNAL)


@pytest.mark.parametrize("error", [RunError("lost"), ExceptionGroup("", [KeyError("x"), RunError("lost")])])
async def test_what_a_run_raises_is_returned(error: Exception) -> None:
    async def run() -> None:
        raise error

    assert str(await contained(run, trio.CancelScope(), "git")) == "lost"


async def test_a_run_whose_scope_is_cancelled_returned() -> None:
    scope = trio.CancelScope()
    scope.cancel()
    assert await contained(trio.sleep_forever, scope, "git") is None


async def test_cancellation_from_outside_passes() -> None:
    with trio.CancelScope() as outside:
        outside.cancel()
        await contained(trio.sleep_forever, trio.CancelScope(), "git")
    assert outside.cancelled_caught
