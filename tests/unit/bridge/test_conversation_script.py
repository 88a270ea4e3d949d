"""What a new daemon is told first, and the client instead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from daemon.bridge import conversation
from daemon.bridge.conversation import MAX_SUBSCRIPTIONS, PING_ID, Beginning, Script
from daemon.clients import list_changes

if TYPE_CHECKING:
    import pytest

HELLO = b'{"method":"mcpd/hello"}\n'
INITIALIZE = b'{"id":1,"method":"initialize"}\n'
LISTEN = b'{"id":"s","method":"subscriptions/listen"}\n'


def messages(lines: bytes) -> list[str]:
    return [json.loads(line)["method"] for line in lines.splitlines()]


def test_before_the_client_has_said_anything_a_daemon_is_only_asked_whether_it_is_there() -> None:
    opening, awaited = Script(HELLO).opening()
    assert messages(opening) == ["mcpd/hello", "ping"]
    assert awaited == PING_ID
    assert Script(b"").sequel() == b""
    assert Script(b"").announcement() == b""


def test_the_handshake_is_repeated_with_the_hello_before_it() -> None:
    script = Script(HELLO)
    script.shook_hands(b"1", INITIALIZE)
    script.initialized = True
    assert script.handshaken
    assert script.opening() == (HELLO + INITIALIZE, b"1")
    assert messages(script.sequel()) == ["notifications/initialized"]
    assert messages(script.announcement()) == [
        f"notifications/{each}/list_changed" for each in ("tools", "prompts", "resources")
    ]


def test_a_handshake_that_took_place_after_the_opening_is_sent_once() -> None:
    script = Script(HELLO)
    script.opening()
    assert script.supplement() is None
    script.shook_hands(b"1", INITIALIZE)
    assert script.supplement() == (INITIALIZE, b"1")
    assert script.supplement() is None
    script.opening()
    assert script.supplement() is None


def test_a_later_daemon_is_told_when_the_conversation_began(monkeypatch: pytest.MonkeyPatch) -> None:
    for hello in (b"", b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{"session":"k"}}\n'):
        clock = {"time": 1000.0, "boot": 50.0}
        monkeypatch.setattr(conversation, "time", lambda clock=clock: clock["time"])
        monkeypatch.setattr(conversation, "clock_gettime", lambda _clock, clock=clock: clock["boot"])
        script = Script(hello)
        script.began = Beginning()
        # Three things happen to clocks: they go on, and are set forward or back.
        for time, boot, began in ((1010.0, 60.0, 1000.0), (5000.0, 70.0, 1000.0), (500.0, 80.0, 470.0)):
            clock.update(time=time, boot=boot)
            (said, _ping) = script.opening()[0].splitlines()
            params = json.loads(said)["params"]
            assert params.pop("resumed") == began
            assert params == ({"session": "k"} if hello else {})


def test_a_subscription_is_opened_again_and_the_client_hears_of_changes_instead() -> None:
    script = Script(b"")
    script.subscribed(b'"s"', LISTEN)
    line = b'{"params":{"notifications":{"toolsListChanged":true}}}'
    assert script.reopened(b'"s"', line) is None
    script.opening()
    assert script.sequel() == LISTEN
    told = json.loads(script.reopened(b'"s"', line) or b"")
    assert told["method"] == "notifications/tools/list_changed"
    assert told["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "s"}
    assert script.reopened(b'"s"', line) is None


def test_a_subscription_is_told_of_the_lists_that_it_is_for() -> None:
    script = Script(b"")
    script.subscribed(b'"s"', LISTEN)
    script.sequel()
    line = b'{"params":{"notifications":{"promptsListChanged":true,"resourcesListChanged":true}}}'
    told = messages(script.reopened(b'"s"', line) or b"")
    assert told == ["notifications/prompts/list_changed", "notifications/resources/list_changed"]


def test_a_subscription_that_is_for_no_list_is_opened_again_in_silence() -> None:
    script = Script(b"")
    script.subscribed(b'"s"', LISTEN)
    script.sequel()
    assert script.reopened(b'"s"', b'{"params":{"notifications":{}}}') == b""


def test_a_subscription_that_has_ended_is_not_opened_again() -> None:
    script = Script(b"")
    script.subscribed(b'"s"', LISTEN)
    script.unsubscribed(b'"s"')
    script.unsubscribed(b"7")
    assert script.sequel() == b""


def test_as_many_subscriptions_are_kept_as_the_daemon_allows() -> None:
    script = Script(b"")
    for number in range(MAX_SUBSCRIPTIONS + 5):
        script.subscribed(b"%d" % number, LISTEN)
    assert len(script.subscriptions) == MAX_SUBSCRIPTIONS == list_changes.MAX_SUBSCRIPTIONS
