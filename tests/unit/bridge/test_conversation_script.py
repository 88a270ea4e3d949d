"""The bytes for a new daemon, and the clock behind them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from daemon.bridge import conversation
from daemon.bridge.conversation import MAX_SUBSCRIPTIONS, Beginning, Script
from daemon.clients import list_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

LISTEN = b'{"id":"s","method":"subscriptions/listen"}\n'


def test_a_handshake_after_the_opening_is_sent_once() -> None:
    script = Script(b"")
    assert script.sequel() == script.announcement() == b""
    script.opening()
    assert script.supplement() is None
    script.shook_hands(b"1", b"{}\n")
    assert script.supplement() == (b"{}\n", b"1")
    assert script.supplement() is None
    script.opening()
    assert script.supplement() is None


@pytest.mark.parametrize("hello", [b"", b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{"session":"k"}}\n'])
def test_a_later_daemon_learns_when_the_conversation_began_whatever_happens_to_the_clock(
    hello: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"time": 1000.0, "boot": 50.0}
    monkeypatch.setattr(conversation, "time", lambda: clock["time"])
    monkeypatch.setattr(conversation, "clock_gettime", lambda _clock: clock["boot"])
    script = Script(hello)
    script.began = Beginning()
    for time, boot, began in ((1010.0, 60.0, 1000.0), (5000.0, 70.0, 1000.0), (500.0, 80.0, 470.0)):
        clock.update(time=time, boot=boot)
        (said, _ping) = script.opening()[0].splitlines()
        params = json.loads(said)["params"]
        assert params.pop("resumed") == began
        assert params == ({"session": "k"} if hello else {})


@pytest.mark.parametrize("lists", [("tools",), ("prompts", "resources"), ()])
def test_a_reopened_subscription_announces_the_lists_that_it_is_for(lists: Sequence[str]) -> None:
    script = Script(b"")
    script.subscribed(b'"s"', LISTEN)
    granted = {f"{each}ListChanged": True for each in lists}
    line = json.dumps({"params": {"notifications": granted}}, separators=(",", ":")).encode()
    assert script.reopened(b'"s"', line) is None
    assert script.sequel() == LISTEN
    told = [json.loads(each) for each in (script.reopened(b'"s"', line) or b"").splitlines()]
    assert [each["method"] for each in told] == [f"notifications/{each}/list_changed" for each in lists]
    assert all(each["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "s"} for each in told)
    assert script.reopened(b'"s"', line) is None
    script.unsubscribed(b'"s"')
    script.unsubscribed(b"7")
    assert script.sequel() == b""


def test_as_many_subscriptions_are_kept_as_the_daemon_allows() -> None:
    script = Script(b"")
    for number in range(MAX_SUBSCRIPTIONS + 5):
        script.subscribed(b"%d" % number, LISTEN)
    assert len(script.subscriptions) == MAX_SUBSCRIPTIONS == list_changes.MAX_SUBSCRIPTIONS
