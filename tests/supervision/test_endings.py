"""What a run raised, as a kind of end and as a reason."""

from __future__ import annotations

import pytest

from daemon.backoff import Ending
from daemon.errors import CannotStart, ConnectionLost, NeedsAuth, StartTimeout
from daemon.supervision.endings import ending_of, reason_of

KINDS: list[tuple[BaseException | None, Ending]] = [
    (None, Ending.NORMAL),
    (ConnectionLost("bye", normal=True), Ending.NORMAL),
    (ConnectionLost("it hung up"), Ending.CRASHED),
    (StartTimeout("no answer"), Ending.CRASHED),
    (KeyError("bug"), Ending.CRASHED),
    (CannotStart("no such command"), Ending.CANNOT_START),
    (NeedsAuth("401"), Ending.NEEDS_AUTH),
]


@pytest.mark.parametrize(("error", "ending"), KINDS, ids=str)
def test_what_was_raised_says_what_kind_of_end_it_was(error: BaseException | None, ending: Ending) -> None:
    assert ending_of(error, asked=False) is ending
    assert ending_of(error, asked=True) is Ending.ASKED


def test_the_reason_is_in_words_and_names_a_fault_of_ours_as_one() -> None:
    assert reason_of(None) == "it ended"
    assert reason_of(StartTimeout("no answer")) == "no answer"
    assert reason_of(KeyError("bug")) == "mcpd's own fault: KeyError: 'bug'"
