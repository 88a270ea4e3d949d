"""How a run ended, and what is shown of a child: legal moves, no secrets, and the cause of the last end."""

import attrs
import pytest

from daemon.causes import Cause, Reason, Remedy
from daemon.errors import CannotStart, ConnectionLost, NeedsAuth, StartTimeout
from daemon.facts import ServerStatus
from daemon.states import ServerState
from daemon.supervision.backoff import Ending
from daemon.supervision.lifecycle import ENDED, ChildStatus, ending_of, mending, reason_of

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
    (CannotStart("no sandbox", Cause.SANDBOX_UNAVAILABLE, problem="ended"), Ending.CRASHED),
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
    assert (ours.text, ours.cause) == ("internal error in mcpd: KeyError: 'bug'", Cause.INTERNAL)


S = ServerState
GONE = Reason("command not found: hush", Cause.COMMAND_NOT_FOUND, {"command": "hush"})


@pytest.fixture
def told() -> list[ServerStatus]:
    return []


@pytest.fixture
def status(told: list[ServerStatus]) -> ChildStatus:
    return ChildStatus(told.append, lambda: 5.0, lambda text: text.replace("hush", "***"))


def test_no_secret_is_shown_neither_in_words_nor_in_data(status: ChildStatus, told: list[ServerStatus]) -> None:
    status.become(S.STARTING)
    status.become(S.FAILED, GONE)
    assert told[-1].reason == "command not found: ***"
    assert (told[-1].cause, told[-1].why.data) == (Cause.COMMAND_NOT_FOUND, {"command": "***"})
    assert status.count_end(GONE, asked=False).data == {"command": "***"}


def test_the_same_is_told_once_and_another_cause_is_news(status: ChildStatus, told: list[ServerStatus]) -> None:
    status.become(S.STARTING)
    for reason in (GONE, GONE, Reason(GONE.text, Cause.CANNOT_START)):
        status.become(S.FAILED, reason)
    assert [each.cause for each in told[1:]] == [Cause.COMMAND_NOT_FOUND, Cause.CANNOT_START]


def test_a_start_after_a_failure_keeps_its_cause_in_line_too(status: ChildStatus) -> None:
    status.become(S.STARTING)
    status.count_end(GONE, asked=False)
    status.back_off(S.BACKOFF, 3.0)
    assert status.value.next_retry_at == 8.0
    status.queue(2)
    assert status.value.reason == (
        "waits for its turn to start (servers before it: 2); trying again after: command not found: ***"
    )
    assert status.value.cause is Cause.COMMAND_NOT_FOUND
    status.count_end(Reason("restarted"), asked=True)
    assert (status.failures, status.again.cause) == (0, None)


def test_until_the_words_of_an_end_are_read_it_is_taken_for_the_one_before(status: ChildStatus) -> None:
    read = attrs.evolve(GONE, remedy=Remedy("It lacks hush.", "Install it.", by_words=True))
    status.become(S.STARTING)
    status.count_end(read, asked=False)
    status.back_off(S.BACKOFF, 3.0)
    status.become(S.STARTING, status.again)
    for reason, happened in ((GONE, "It lacks ***."), (Reason("", Cause.ENDED), "It ended by itself")):
        status.become(S.BACKOFF, reason)
        assert status.value.why.remedy is not None
        assert status.value.why.remedy.happened.startswith(happened)


def test_a_move_that_is_not_in_the_table_is_refused(status: ChildStatus) -> None:
    with pytest.raises(ValueError, match="from stopped to ready"):
        status.become(S.READY)


@pytest.mark.parametrize(
    "problem", ["bwrap", "nsenter", "apparmor", "userns", "unit", "namespaces", "limit", "proc"]
)
def test_each_kind_of_machine_without_sandboxes_has_one_command_that_helps(problem: str) -> None:
    error = CannotStart("x", Cause.SANDBOX_UNAVAILABLE, error="x", problem=problem, python="/usr/bin/python3")
    assert mending(error).count("`") == 2
