"""Which servers' last words are asked for, and what becomes of a daemon that does not know the question."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.cli.control import DaemonUnreachable, RemoteFault
from daemon.cli.status import last_words
from daemon.operators.remedies import LINES
from tests.unit.cli.daemons import down, server


class Daemon:
    """Answers `logs`, or fails to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((method, params))
        if self.error is not None:
            raise self.error
        return {"lines": [{"n": 1, "text": "earlier"}, {"n": 2, "text": "later"}]}


def test_only_servers_that_may_say_more_are_asked_about() -> None:
    daemon = Daemon()
    servers = {
        "well": server(stderr=["chatter"]),
        "open": down(stderr=["later"]),
        "mute": down(),
        "plain": down("killed", reason="killed by SIGKILL", causeData={"signal": "SIGKILL"}, stderr=["later"]),
    }
    assert last_words(servers, daemon) == {"open": ["earlier", "later"], "mute": [], "plain": ["later"]}
    assert daemon.asked == [("logs", {"server": "open", "last": LINES})]


@pytest.mark.parametrize("error", [RemoteFault(-32601, "Method not found"), DaemonUnreachable("gone")])
def test_a_daemon_that_does_not_answer_is_taken_by_what_it_showed(error: Exception) -> None:
    assert last_words({"open": down(stderr=["later"])}, Daemon(error)) == {"open": ["later"]}


def test_only_words_of_the_last_run_count() -> None:
    def ask(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
        return {"lines": [{"text": "of old", "run": 3}, {"text": "a", "run": 4}, {"text": "b", "run": 4}]}

    assert last_words({"open": down(stderr=["b"])}, ask) == {"open": ["a", "b"]}
