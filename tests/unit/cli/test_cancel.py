"""`mcpd cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.cli import implementation
from daemon.cli.calls import cancelled
from tests.unit.cli.test_calls import WAITING

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("cancel").main


def test_the_call_that_was_ended_is_named(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"cancel": {"call": WAITING}})
    assert main(["17"]) == 0
    assert capsys.readouterr().out == (
        "cancelled after 46s: git/git_log of agent 1; it was sent, and may have run\n"
    )
    assert daemon.asked == [("cancel", {"id": 17})]


def test_it_is_said_that_a_call_was_not_sent() -> None:
    assert cancelled({"call": {**WAITING, "sent": False}}).endswith("; it was not sent")


@pytest.mark.parametrize("word", ["0", "-1", "git"])
def test_what_is_no_number_of_a_call_is_refused(word: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([word])
    assert ended.value.code == 2
