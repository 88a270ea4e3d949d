"""One client that comes before any daemon does: it is answered meanwhile, and then the daemon is told of it."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from daemon import protocol
from daemon.bridge import conversation
from daemon.bridge.conversation import MAX_SUBSCRIPTIONS, Beginning, Script
from daemon.bridge.requests import WAIT_SECONDS
from daemon.bridge.stand_in import ARRIVED, HANDSHAKE_SECONDS, LIST_SECONDS, STATUS
from daemon.clients import notifications
from tests.unit.bridge.talking import (
    ACKNOWLEDGED,
    BIG,
    CALL,
    CHANGED,
    INITIALIZE,
    INITIALIZED,
    LIST,
    LISTEN,
    PING,
    Json,
    Talk,
    acknowledgement,
    line,
    refused,
    result,
)

HELLO = b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{"version":"1"}}\n'
SAID_HELLO = {"method": "mcpd/hello", "params": {"version": "1"}}
LOOK = {"id": 8, "method": "tools/call", "params": {"name": STATUS}}
DISCOVER = {
    "id": 0,
    "method": "server/discover",
    "params": {"_meta": {protocol.VERSION_KEY: protocol.MODERN_VERSION}},
}
SUBSCRIBE = {**LISTEN, "params": {"notifications": {"toolsListChanged": True}}}


@pytest.fixture
def mute() -> Iterator[Talk]:
    """Somebody has taken the connection, and says nothing yet."""
    talk = Talk(HELLO)
    talk.conversation.trouble = "it has not answered yet"
    yield talk
    talk.close()


@pytest.fixture
def talk() -> Iterator[Talk]:
    talk = Talk(HELLO, through=False)
    talk.conversation.trouble = "nobody listens on /run/x.sock"
    yield talk
    talk.close()


def later(talk: Talk, seconds: float) -> list[Json]:
    """What the client got when so much time has passed."""
    talk.now += seconds
    talk.conversation.expire(talk.now)
    return talk.heard


def begin(talk: Talk) -> None:
    """Handshake and list, without a daemon."""
    talk.says(INITIALIZE)
    assert later(talk, HANDSHAKE_SECONDS - 0.1) == []
    (answer,) = later(talk, 0.1)
    assert answer["result"]["protocolVersion"] == "2025-06-18"
    assert answer["result"]["serverInfo"]["name"] == "mcpd"
    talk.says(INITIALIZED, LIST)
    assert later(talk, LIST_SECONDS - 0.1) == []
    (answer,) = later(talk, 0.1)
    (tool,) = answer["result"]["tools"]
    assert (answer["id"], tool["name"]) == (1, STATUS)
    assert "nobody listens on /run/x.sock" in tool["description"]


def test_the_daemon_that_comes_gets_the_handshake_and_the_client_is_told_of_its_tools(talk: Talk) -> None:
    begin(talk)
    talk.says(CALL)
    talk.returns()
    assert talk.got == [SAID_HELLO, INITIALIZE]
    talk.answers(result(0, {"serverInfo": {}}))
    assert talk.got == [INITIALIZED, CALL]
    assert talk.heard == CHANGED
    assert talk.resumed == []
    talk.passes(LIST)


def test_a_daemon_that_comes_in_time_answers_the_handshake_itself(talk: Talk) -> None:
    talk.says(INITIALIZE)
    talk.returns()
    assert talk.got == [SAID_HELLO, PING]
    talk.answers(result("mcpd-connect"))
    assert talk.got == [INITIALIZE]
    talk.answers(result(0, {"instructions": "the daemon's"}))
    assert talk.heard == [{"id": 0, "result": {"instructions": "the daemon's"}}]
    assert talk.daemon.is_calm


def test_a_daemon_that_waits_for_servers_says_that_it_is_there() -> None:
    hello = b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{"servers":["git"],"version":"1"}}\n'
    talk = Talk(hello)
    talk.says(INITIALIZE)
    assert talk.got == [
        {"method": "mcpd/hello", "params": {"servers": ["git"], "version": "1"}},
        PING,
        INITIALIZE,
    ]
    talk.answers(result("mcpd-connect"))
    assert talk.heard == []
    assert later(talk, WAIT_SECONDS) == []
    talk.answers(result(0, {"serverInfo": {"name": "git"}}))
    assert talk.heard == [{"id": 0, "result": {"serverInfo": {"name": "git"}}}]
    talk.close()


def test_a_daemon_that_comes_before_the_handshake_is_answered_here(talk: Talk) -> None:
    talk.says(INITIALIZE)
    talk.returns()
    assert talk.got == [SAID_HELLO, PING]
    assert later(talk, HANDSHAKE_SECONDS)[0]["result"]["serverInfo"]["name"] == "mcpd"
    talk.says(INITIALIZED, LIST)
    talk.answers(result("mcpd-connect"))
    assert talk.got == [INITIALIZE]
    talk.answers(result(0, {"instructions": "the daemon's"}))
    assert talk.got == [INITIALIZED, LIST]
    assert talk.heard == CHANGED


def test_in_the_modern_era_a_subscription_is_kept_for_the_daemon(talk: Talk) -> None:
    talk.says(DISCOVER)
    (answer,) = later(talk, HANDSHAKE_SECONDS)
    assert answer["result"]["resultType"] == "complete"
    talk.says(SUBSCRIBE)
    (answer,) = later(talk, 0)
    assert answer["method"] == ACKNOWLEDGED
    talk.returns()
    assert talk.got == [SAID_HELLO, PING]
    talk.answers(result("mcpd-connect"))
    assert talk.got == [SUBSCRIBE]
    talk.answers(acknowledgement("s"))
    (told,) = talk.heard
    assert told["method"] == CHANGED[0]["method"]
    assert told["params"]["_meta"][protocol.SUBSCRIPTION_KEY] == "s"


def test_what_the_client_calls_waits_for_the_daemon_and_says_what_to_do(talk: Talk) -> None:
    begin(talk)
    talk.says(CALL, LOOK)
    assert later(talk, WAIT_SECONDS - 0.1) == []
    answers = later(talk, 0.1)
    assert [each["id"] for each in answers] == [2, 8]
    for each in answers:
        assert refused(each) == "UpstreamUnavailable"
        text = each["result"]["content"][0]["text"]
        assert all(part in text for part in ("nobody listens on /run/x.sock", "30 s", "safe to try again"))


def test_our_own_tool_answers_at_once_where_nobody_starts_a_daemon(talk: Talk) -> None:
    begin(talk)
    talk.conversation.starts = bool
    talk.says(CALL, LOOK)
    (answer,) = talk.heard
    assert (answer["id"], refused(answer)) == (8, "UpstreamUnavailable")
    text = answer["result"]["content"][0]["text"]
    assert "nobody listens on /run/x.sock" in text
    assert " s. " not in text, "nothing has lasted"


def test_a_method_that_we_do_not_know_is_refused_as_soon_as_a_list_would_be_answered(talk: Talk) -> None:
    talk.says({"id": 3, "method": "prompts/new"})
    (answer,) = later(talk, LIST_SECONDS)
    assert "This has lasted for 3 s" in answer["error"]["message"]


def calm(talk: Talk) -> bool:
    """Whether lines pass as they are, and are only looked at when they are on their way."""
    return talk.daemon.is_calm


def said(answer: Json) -> Any:
    assert answer["result"]["isError"] is False
    return answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("waits", [True, False])
def test_our_own_tool_says_that_the_daemon_has_come(talk: Talk, *, waits: bool) -> None:
    begin(talk)
    if waits:
        talk.says(LOOK)
    talk.comes_back()
    if not waits:
        talk.says(LOOK)
    *changed, answer = talk.heard
    assert changed == CHANGED
    assert (answer["id"], said(answer)) == (8, ARRIVED)
    assert talk.got == [INITIALIZED]

    talk.passes(LIST)
    talk.answers(result(1))
    assert talk.heard == [{"id": 1, "result": {}}]
    assert calm(talk)
    assert talk.conversation.own_tool == STATUS.encode()
    talk.says(LOOK)
    assert talk.got == []
    assert said(*talk.heard) == ARRIVED


def test_our_own_tool_gives_way_to_the_daemons_of_that_name(talk: Talk) -> None:
    begin(talk)
    talk.comes_back()
    talk.says(LIST)
    talk.answers(line({"id": 1, "result": {"tools": [{"name": STATUS}]}}))
    talk.says(LOOK)
    assert talk.got[-2:] == [LIST, LOOK]
    assert not talk.conversation.own_tool


def test_what_was_never_listed_is_no_tool_of_ours(talk: Talk) -> None:
    talk.says(INITIALIZE)
    assert later(talk, HANDSHAKE_SECONDS)
    talk.comes_back()
    talk.says(LOOK)
    assert not talk.conversation.own_tool
    assert talk.got == [LOOK]


def test_our_own_tool_says_that_the_daemon_refuses_the_client(talk: Talk) -> None:
    begin(talk)
    talk.returns()
    refusal = {"id": 0, "error": {"code": -32602, "message": "no such profile: x"}}
    talk.answers(line(refusal))
    talk.says(LOOK)
    *changed, answer = talk.heard
    assert changed == CHANGED
    assert answer["result"]["isError"] is True
    assert "no such profile: x" in answer["result"]["content"][0]["text"]
    talk.restarts()
    talk.says(LOOK)
    assert said(talk.heard[-1]) == ARRIVED


def test_a_client_that_asks_after_the_first_daemon_was_heard_waits_as_after_a_restart(talk: Talk) -> None:
    begin(talk)
    talk.comes_back()
    talk.dies()
    talk.says(LIST)
    assert [each["method"] for each in later(talk, WAIT_SECONDS - 1)] == [each["method"] for each in CHANGED]
    (answer,) = later(talk, 1)
    assert "error" in answer


def test_a_handshake_that_cannot_be_read_is_refused(talk: Talk) -> None:
    talk.client.said(b'{"method":"initialize","id":0,"params":[]}\n', talk.now)
    (answer,) = later(talk, HANDSHAKE_SECONDS)
    assert "nobody listens" in answer["error"]["message"]
    assert not talk.conversation.stands_in


# --- somebody listens, and says nothing -----------------------------------------------------------------------


def stood_in(mute: Talk) -> None:
    """Handshake and list, with a daemon that has the handshake and does not answer."""
    mute.says(INITIALIZE)
    assert mute.got == [SAID_HELLO, INITIALIZE]
    assert later(mute, HANDSHAKE_SECONDS - 0.1) == []
    (answer,) = later(mute, 0.1)
    assert answer["result"]["serverInfo"]["name"] == "mcpd"
    mute.says(INITIALIZED, LIST)
    (answer,) = later(mute, LIST_SECONDS)
    assert "it has not answered yet" in answer["result"]["tools"][0]["description"]
    assert mute.got == []


def test_a_client_of_a_daemon_that_says_nothing_is_answered(mute: Talk) -> None:
    stood_in(mute)
    mute.says(CALL)
    mute.answers(result(0, {"instructions": "the daemon's"}))
    assert mute.heard == CHANGED
    assert mute.got == [INITIALIZED, CALL]
    mute.answers(result(2))
    assert mute.heard == [{"id": 2, "result": {}}]


def test_all_that_was_answered_here_is_kept_from_the_client_and_all_else_is_the_daemons(mute: Talk) -> None:
    mute.says(INITIALIZE, INITIALIZED, LIST, CALL)
    assert [each["id"] for each in later(mute, LIST_SECONDS)] == [0, 1]
    mute.answers(result(0))
    assert mute.heard == CHANGED
    assert not calm(mute)
    mute.answers(result(1), result(2))
    assert mute.heard == [{"id": 2, "result": {}}]


def test_a_daemon_that_said_nothing_and_goes_is_followed_by_one_that_gets_it_all(mute: Talk) -> None:
    stood_in(mute)
    mute.says(CALL)
    mute.dies()
    assert mute.heard == []
    mute.returns()
    assert mute.got == [SAID_HELLO, INITIALIZE]
    mute.answers(result(0))
    assert mute.got == [INITIALIZED, CALL]
    assert mute.heard == CHANGED


def test_a_call_that_the_mute_daemon_has_may_have_run(mute: Talk) -> None:
    mute.says(INITIALIZE, CALL)
    assert mute.got
    assert later(mute, HANDSHAKE_SECONDS)
    mute.dies()
    assert [refused(each) for each in mute.heard] == ["UpstreamLost"]


def test_nothing_is_answered_here_of_what_is_taken_back(mute: Talk) -> None:
    mute.says(LIST, {"method": "notifications/cancelled", "params": {"requestId": 1}})
    assert later(mute, LIST_SECONDS) == []


def test_a_client_that_asks_nothing_more_waits_for_the_daemons_own_answer(mute: Talk) -> None:
    mute.says(INITIALIZE)
    mute.client.ended()
    assert later(mute, HANDSHAKE_SECONDS) == []


def test_no_line_of_ours_comes_in_the_middle_of_a_long_one(mute: Talk) -> None:
    mute.says(INITIALIZE)
    text = line(BIG)
    mute.client.said(text[:-1], mute.now)
    assert later(mute, HANDSHAKE_SECONDS) == []
    mute.answers(result(0))
    mute.client.said(text[-1:], mute.now)
    assert mute.got == [SAID_HELLO, INITIALIZE, BIG]


LISTENS = b'{"id":"s","method":"subscriptions/listen"}\n'


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
    script.subscribed(b'"s"', LISTENS)
    granted = {f"{each}ListChanged": True for each in lists}
    line = json.dumps({"params": {"notifications": granted}}, separators=(",", ":")).encode()
    assert script.reopened(b'"s"', line) is None
    assert script.sequel() == LISTENS
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
        script.subscribed(b"%d" % number, LISTENS)
    assert len(script.subscriptions) == MAX_SUBSCRIPTIONS == notifications.MAX_SUBSCRIPTIONS
