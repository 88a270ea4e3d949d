"""When a bridge has a daemon started, and when it is too early."""

import pytest

from daemon.bridge.ends import START_SECONDS, Starting


def test_a_lost_daemon_is_started_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    starting, spawned = Starting(lambda: True), list[str]()
    monkeypatch.setattr(starting, "_spawn", spawned.append)
    starting.ask(100.0, awaited=True, known=False)
    starting.ask(100.0 + START_SECONDS / 2, awaited=True, known=False)
    assert spawned == ["new"]
    starting.lost()
    starting.ask(100.0 + START_SECONDS / 2, awaited=False, known=True)
    assert spawned == ["new", "known"]
