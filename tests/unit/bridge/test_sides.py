"""One client, one daemon after the other: who is told what, when the first one goes."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from daemon import protocol
from daemon.bridge.frames import LONG_BYTES
from daemon.bridge.requests import KEPT_CALL_BYTES, MAX_OPEN, WAIT_SECONDS, WAITING_BYTES
from daemon.wire import envelope
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
    Talk,
    acknowledgement,
    line,
    parsed,
    refused,
    result,
)


@pytest.fixture(params=[False, True], ids=["with care", "in short"])
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    talk = Talk(in_short=request.param)
    yield talk
    talk.close()


def unsent(*ids: object) -> bytes:
    """What a daemon that stops says of requests that it has passed on to nobody."""
    body = json.dumps({"ids": list(ids)}, separators=(",", ":")).encode()
    return b"".join(map(bytes, envelope.notification(protocol.UNSENT, body))) + b"\n"


def test_while_a_daemon_is_there_everything_passes_as_it_is(talk: Talk) -> None:
    odd = b'{ "id":1 , "method":"x"}\n\xff\n\n{"id":\n'
    talk.client.said(odd, talk.now)
    assert talk.received == odd
    talk.answers(odd)
    assert bytes(talk.conversation.down) == odd


@pytest.mark.parametrize("stopping", [False, True])
def test_a_call_that_may_have_run_is_answered_and_not_sent_again(talk: Talk, *, stopping: bool) -> None:
    talk.handshake()
    talk.passes(CALL)
    if stopping:
        talk.answers(unsent())
    talk.dies()
    (answer,) = talk.heard
    assert (answer["id"], refused(answer)) == (2, "UpstreamLost")
    assert "resultType" not in answer["result"]
    talk.comes_back()
    assert talk.got == [INITIALIZED]


@pytest.mark.parametrize("in_short", [True, False])
def test_what_a_stopping_daemon_passed_on_to_nobody_is_sent_to_the_next_one(*, in_short: bool) -> None:
    with closing(Talk(in_short=in_short)) as talk:
        talk.handshake()
        ran, second, third, later = ({**CALL, "id": number} for number in (1, 2, 3, 4))
        talk.passes(ran, second, third)
        talk.answers(unsent(2, 3))
        talk.says(later, {"method": "notifications/cancelled", "params": {"requestId": 3}})
        assert talk.got == [{"method": "mcpd/held"}], "it is told that nothing more comes"
        talk.answers(result(1))
        assert talk.heard == [{"id": 1, "result": {}}], "it still answers"
        talk.restarts()
        assert sorted((each for each in talk.got if "id" in each), key=lambda each: each["id"]) == [
            second,
            later,
        ]


def test_a_call_that_was_passed_on_to_nobody_and_is_too_long_to_keep_is_safe_to_send(talk: Talk) -> None:
    talk.handshake()
    long = {**CALL, "params": {"x": "y" * KEPT_CALL_BYTES}}
    talk.passes(long)
    talk.answers(unsent(2))
    talk.dies()
    assert "safe to send" in json.dumps(talk.heard[0])


def test_what_has_no_effect_is_asked_again_and_nobody_notices(talk: Talk) -> None:
    talk.handshake()
    ping = {"id": "p", "method": "ping"}
    talk.passes(LIST, ping)
    assert talk.conversation.deadline is None
    talk.restarts()
    assert talk.got == [INITIALIZED, LIST, ping]
    talk.answers(result(1), result("p"))
    assert talk.heard == [*CHANGED, {"id": 1, "result": {}}, {"id": "p", "result": {}}]


def test_an_unknown_method_is_taken_for_one_with_an_effect(talk: Talk) -> None:
    talk.says({"id": 9, "method": "prompts/new"})
    assert talk.got
    talk.dies()
    assert talk.heard[0]["error"]["data"] == {"code": "UpstreamLost"}


def test_the_hello_is_sent_to_every_daemon_once() -> None:
    hello = line({"method": "mcpd/hello", "params": {"session": "k"}})
    talk = Talk(hello)
    # The first daemon goes before it has read anything.
    talk.restarts()
    assert talk.got == []
    assert talk.resumed == []
    talk.dies()
    talk.returns()
    assert talk.got == [*parsed(hello), PING]
    assert len(talk.resumed) == 1
    talk.close()


def test_a_refused_handshake_lets_the_client_hear_why(talk: Talk) -> None:
    talk.handshake()
    talk.dies()
    talk.returns()
    talk.says(LIST)
    assert talk.got == [INITIALIZE]
    refusal = b"".join(map(bytes, envelope.error_response(b"0", -32600, "no such profile"))) + b"\n"
    talk.answers(refusal)
    assert talk.got == [INITIALIZED, LIST]


def test_the_modern_era_is_given_its_result_type_and_its_subscription(talk: Talk) -> None:
    talk.subscribe()
    talk.passes(CALL)
    talk.dies()
    (answer,) = talk.heard
    assert answer["result"]["resultType"] == "complete"
    talk.comes_back()
    assert talk.got == [LISTEN]
    talk.answers(acknowledgement("s"))
    assert talk.heard == [{**CHANGED[0], "params": {"_meta": {protocol.SUBSCRIPTION_KEY: "s"}}}]


def test_a_subscription_that_was_not_acknowledged_is_asked_for_again(talk: Talk) -> None:
    talk.passes(LISTEN)
    talk.restarts()
    assert talk.got == [LISTEN]
    talk.answers(acknowledgement("s"))
    assert [each["method"] for each in talk.heard] == [ACKNOWLEDGED]


@pytest.mark.parametrize("ended", ["by the daemon", "by the client", "by the client without a daemon"])
def test_a_subscription_that_has_ended_is_not_opened_again(talk: Talk, ended: str) -> None:
    talk.subscribe()
    cancel = {"method": "notifications/cancelled", "params": {"requestId": "s"}}
    if ended == "by the daemon":
        talk.answers(result("s"))
        assert talk.heard == [{"id": "s", "result": {}}]
        talk.restarts()
    elif ended == "by the client without a daemon":
        talk.dies()
        talk.says(cancel)
        talk.comes_back()
    else:
        talk.passes(cancel)
        talk.restarts()
    assert talk.got == []


def test_what_the_client_sends_meanwhile_waits_in_order(talk: Talk) -> None:
    talk.handshake()
    talk.dies()
    talk.says(LIST, CALL, {"method": "notifications/progress"})
    assert talk.heard == []
    talk.returns()
    more = {"id": 7, "method": "tools/list"}
    talk.says(more)
    talk.greeted()
    assert talk.got == [INITIALIZED, LIST, CALL, {"method": "notifications/progress"}, more]
    # They are open now, as if they had been sent at first.
    talk.dies()
    assert [refused(answer) for answer in talk.heard if answer.get("id") == 2] == ["UpstreamLost"]


@pytest.mark.parametrize("when", ["in flight", "waiting"])
def test_what_is_cancelled_gets_no_answer_and_is_not_sent(talk: Talk, when: str) -> None:
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 2}}
    if when == "in flight":
        talk.passes(CALL, cancel)
        talk.dies()
    else:
        talk.dies()
        talk.says(CALL, cancel)
    talk.now += WAIT_SECONDS
    talk.conversation.expire(talk.now)
    assert talk.heard == []
    talk.comes_back()
    assert talk.got == []


def test_answers_to_the_last_daemon_are_not_given_to_the_next(talk: Talk) -> None:
    talk.dies()
    talk.says({"id": "srv-1", "result": {}}, LIST)
    talk.comes_back()
    assert talk.got == [LIST]


def test_what_waits_too_long_is_answered_and_not_sent_later(talk: Talk) -> None:
    talk.handshake()
    talk.dies()
    talk.conversation.trouble = "nobody listens on /run/x.sock"
    talk.says(CALL, {"method": "notifications/progress"})
    talk.now += WAIT_SECONDS / 2
    talk.says(LIST)
    talk.now += WAIT_SECONDS / 2
    assert talk.conversation.deadline == talk.now
    talk.conversation.expire(talk.now)
    (answer,) = talk.heard
    assert (answer["id"], refused(answer)) == (2, "UpstreamUnavailable")
    text = answer["result"]["content"][0]["text"]
    assert all(part in text for part in ("nobody listens on /run/x.sock", "30 s", "safe to try again"))
    talk.comes_back()
    assert talk.got == [INITIALIZED, LIST]
    assert talk.conversation.deadline is None


def test_the_patience_with_a_request_is_one_however_many_daemons_die_of_it(talk: Talk) -> None:
    talk.says(LIST)
    assert talk.got
    talk.dies()
    first = talk.conversation.deadline
    for _ in range(3):
        talk.now += 5
        talk.comes_back()
        assert talk.got == [LIST]
        talk.dies()
    assert talk.conversation.deadline == first


def test_what_finds_no_room_is_refused_at_once(talk: Talk) -> None:
    talk.dies()
    count = 3 * WAITING_BYTES // LONG_BYTES
    for number in range(count):
        talk.says({**CALL, "id": number, "params": {"name": "x" * (LONG_BYTES // 2)}})
    answers = talk.heard
    assert {refused(answer) for answer in answers} == {"UpstreamUnavailable"}
    talk.comes_back()
    assert sorted([each["id"] for each in answers] + [each["id"] for each in talk.got]) == list(range(count))


@pytest.mark.parametrize("length", [20, 2 * LONG_BYTES])
def test_of_an_answer_that_breaks_off_the_client_sees_nothing(talk: Talk, length: int) -> None:
    talk.handshake()
    talk.says(CALL)
    assert talk.got
    said = result(2, {"text": "x" * length})
    talk.answers(said[: length // 2])
    talk.answers(said[length // 2 : -10])
    talk.dies()
    (answer,) = talk.heard
    assert refused(answer) == "UpstreamLost"
    talk.comes_back()
    assert talk.heard == CHANGED


def test_a_long_answer_that_is_complete_is_an_answer(talk: Talk) -> None:
    talk.says(CALL)
    assert talk.got
    long = result(2, {"text": "x" * (2 * LONG_BYTES)})
    for start in range(0, len(long), 100_000):
        talk.answers(long[start : start + 100_000])
    assert bytes(talk.conversation.down) == long
    talk.conversation.down.clear()
    talk.dies()
    assert talk.heard == []


def test_a_request_that_was_sent_in_part_is_sent_whole(talk: Talk) -> None:
    calls = [{**CALL, "id": number, "params": {"name": "x" * 50_000}} for number in range(30)]
    talk.says(*calls)
    talk.conversation.up.send(talk._ours)
    talk.dies()
    lost = {answer["id"] for answer in talk.heard}
    talk.comes_back()
    again = {message["id"] for message in talk.got}
    assert lost
    assert again
    assert lost | again == set(range(30))
    assert not lost & again


@pytest.mark.parametrize("last", [False, True])
def test_a_long_request_that_was_cut_is_answered_as_not_run_when_it_ends(talk: Talk, *, last: bool) -> None:
    talk.handshake()
    order = ("method", "params", "id") if last else ("id", "method", "params")
    text = line({name: BIG[name] for name in order})
    assert text.rstrip().endswith(b'"id":3}') == last
    talk.client.said(text[:-100], talk.now)
    talk.conversation.up.send(talk._ours)
    talk.dies()
    assert talk.heard == []
    talk.client.said(text[-100:] + line(LIST), talk.now)
    (answer,) = talk.heard
    assert (answer["id"], refused(answer)) == (3, "UpstreamUnavailable")
    talk.comes_back()
    assert talk.got == [INITIALIZED, LIST]


@pytest.mark.parametrize(("whole", "code"), [(False, "UpstreamUnavailable"), (True, "UpstreamLost")])
def test_a_long_request_may_have_run_if_sent_to_its_end(talk: Talk, code: str, *, whole: bool) -> None:
    talk.handshake()
    talk.says(BIG) if whole else talk.says(BIG, CALL)
    if whole:
        assert talk.got == [BIG]
    talk.conversation.up.send(talk._ours)
    talk.dies()
    (answer,) = talk.heard
    assert (answer["id"], refused(answer)) == (3, code)
    talk.comes_back()
    assert talk.got == ([INITIALIZED] if whole else [INITIALIZED, CALL])


def test_a_long_request_that_was_refused_before_its_end_is_not_answered_twice(talk: Talk) -> None:
    text = line(BIG)
    talk.client.said(text[:-100], talk.now)
    talk.answers(b"".join(map(bytes, envelope.error_response(b"3", -32600, "RequestTooLarge"))) + b"\n")
    assert [answer["id"] for answer in talk.heard] == [3]
    talk.client.said(text[-100:], talk.now)
    assert len(talk.conversation.requests) == 0
    talk.dies()
    assert talk.heard == []


def test_a_daemon_that_does_not_answer_the_greeting_costs_nothing(talk: Talk) -> None:
    talk.handshake()
    talk.says(LIST)
    assert talk.got
    talk.dies()
    for _ in range(3):
        talk.says({**CALL, "id": 100})
        talk.says({"method": "notifications/cancelled", "params": {"requestId": 100}})
        talk.returns()
        assert talk.got == [INITIALIZE]
        talk.dies()
    talk.comes_back()
    assert talk.got == [INITIALIZED, LIST]


def test_a_line_that_the_client_had_begun_goes_to_the_next_daemon(talk: Talk) -> None:
    text = line(CALL)
    talk.client.said(text[:20], talk.now)
    talk.restarts()
    talk.client.said(text[20:], talk.now)
    assert talk.got == [CALL]


def test_what_a_client_left_without_an_end_is_passed_on_when_it_ends(talk: Talk) -> None:
    talk.client.said(b'{"id":1', talk.now)
    assert talk.received == b""
    talk.client.ended()
    assert talk.received == b'{"id":1'


# --- while nothing waits --------------------------------------------------------------------------------------


def test_nothing_passes_in_short_while_something_waits_or_a_line_is_unfinished() -> None:
    talk = Talk()
    assert not talk.daemon.is_calm
    talk.speaks()
    calm = [talk.daemon.is_calm]
    for portion in (b"{", b"}\n"):
        talk.client.said(portion, talk.now)
        calm.append(talk.daemon.is_calm)
    assert talk.received == b"{}\n"
    calm.append(talk.daemon.is_calm)
    for portion in (b"{", b"}\n"):
        talk.daemon.said(portion)
        calm.append(talk.daemon.is_calm)
    talk.conversation.down.clear()
    calm.append(talk.daemon.is_calm)
    talk.dies()
    calm.append(talk.daemon.is_calm)
    assert calm == [True, False, False, True, False, False, True, False]


def test_a_client_is_not_read_further_when_too_much_of_it_is_open() -> None:
    talk = Talk()
    talk.speaks()
    calls = [line({"id": number, "method": "tools/call", "params": {}}) for number in range(MAX_OPEN)]
    assert talk.client.passed(b"".join(calls[:-1]))
    assert not talk.client.passed(calls[-1])
    full = talk.daemon.is_calm
    talk.daemon.passed(result(0))
    assert (full, talk.daemon.is_calm) == (False, True)
    talk.close()


@pytest.mark.parametrize("request_id", [7, "7", "a,b", 2**70, -1, 1.5])
def test_a_call_in_flight_is_answered_whatever_its_id_and_wherever_that_stands(request_id: object) -> None:
    for members in (("id", "method", "params"), ("method", "params", "id")):
        talk = Talk(in_short=True)
        call = {"id": request_id, "method": "tools/call", "params": {"name": "pay"}}
        answered = {**call, "id": "other"}
        talk.says(answered, {name: call[name] for name in members})
        talk.answers(result("other"))
        assert [each["id"] for each in talk.heard] == ["other"]
        talk.dies()
        (lost,) = talk.heard
        assert (lost["id"], refused(lost)) == (request_id, "UpstreamLost")


def test_a_request_of_the_daemon_with_the_same_id_is_no_answer() -> None:
    talk = Talk(in_short=True)
    talk.says(CALL)
    talk.answers(line({"id": 2, "method": "ping"}))
    talk.says({"id": 2, "result": {}})
    talk.dies()
    assert [each.get("method") for each in talk.heard] == ["ping", None]


@pytest.mark.parametrize("in_short", [True, False])
def test_what_a_daemon_has_asked_is_taken_back_when_it_goes(*, in_short: bool) -> None:
    talk = Talk(in_short=in_short)
    talk.answers(line({"id": 7, "method": "roots/list"}), line({"id": 8, "method": "elicitation/create"}))
    talk.says({"id": 7, "result": {"roots": []}})
    talk.dies()
    *_asked, told = talk.heard
    assert told["method"] == "notifications/cancelled"
    assert told["params"]["requestId"] == 8
    talk.restarts()
    talk.says({"id": 8, "result": {"action": "accept"}})
    talk.dies()
    assert all(each["method"] != "notifications/cancelled" for each in talk.heard)


def test_what_the_client_has_set_is_set_again_with_the_next_daemon_and_answered_once() -> None:
    talk = Talk()
    talk.handshake()
    level = {"id": 4, "method": "logging/setLevel", "params": {"level": "debug"}}
    quiet = {"id": 5, "method": "logging/setLevel", "params": {"level": "error"}}
    one = {"id": 6, "method": "resources/subscribe", "params": {"uri": "a:1"}}
    two = {"id": 7, "method": "resources/subscribe", "params": {"uri": "a:2"}}
    left = {"id": 8, "method": "resources/unsubscribe", "params": {"uri": "a:1"}}
    refused = {"id": 9, "method": "resources/subscribe", "params": {"uri": "a:3"}}
    talk.says(level, quiet, one, two, left, refused)
    assert len(talk.got) == 6
    talk.answers(*(result(number) for number in range(4, 9)), line({"id": 9, "error": {"code": -32602}}))
    assert len(talk.heard) == 6
    talk.restarts()
    assert [each["id"] for each in talk.got if "id" in each] == [5, 7]
    missed = {"method": "notifications/resources/updated", "params": {"uri": "a:2"}}
    assert talk.heard == [*CHANGED, missed], "it may have changed while nobody was told"
    talk.answers(result(5), result(7))
    assert talk.heard == []
    assert talk.daemon.is_calm
    talk.close()
