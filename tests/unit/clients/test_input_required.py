"""Results that ask for input: which are such, how they are written, what answers them."""

from __future__ import annotations

import json
from typing import Any

import mcp_types
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from daemon.clients.input_required import Round, asking_result, fits, input_required_by, responses_in, state_in
from daemon.errors import UpstreamUnavailable
from daemon.surfaces.surface import Forward
from daemon.wire.requests import PeerRequest
from tests.unit.clients.inputs import ACCEPTED, QUESTION, ROOTS, SAMPLED, Told, raw


@pytest.mark.parametrize(
    ("result", "asks"),
    [
        (b'{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}}', ["roots/list"]),
        (b' { "x": [1], "resultType" : "input_required" , "requestState": "s" }', []),
        (b'{"resultType":"input_required","inputRequests":null}', []),
    ],
)
def test_a_result_that_asks_is_read(result: bytes, asks: list[str]) -> None:
    for each in (result, memoryview(result), Raw(result)):
        required = input_required_by(each)
        assert required is not None
        assert [request.method for request in (required.inputRequests or {}).values()] == asks


@pytest.mark.parametrize(
    "result", [b"{}", b'{"resultType":"complete"}', b"[]", b'"input_required"', b'{"x":"input_required"', b""]
)
def test_every_other_result_is_an_answer(result: bytes) -> None:
    assert input_required_by(result) is None


def test_a_state_keeps_its_bytes() -> None:
    required = input_required_by(rb'{"resultType":"input_required","requestState":"\u0041\/"}')
    assert required is not None
    assert required.requestState is not UNSET
    assert bytes(required.requestState) == rb'"\u0041\/"'


@given(
    asked=st.dictionaries(
        st.text(max_size=5),
        st.tuples(st.sampled_from(["elicitation/create", "roots/list"]), st.dictionaries(st.text(), st.text())),
        min_size=1,
    ),
    state=st.text(min_size=1),
)
def test_what_is_written_is_read_back(asked: dict[str, tuple[str, Any]], state: str) -> None:
    requests = {key: PeerRequest(method, raw(params), Told()) for key, (method, params) in asked.items()}
    result = json.loads(asking_result(requests, state))
    assert result == {
        "resultType": "input_required",
        "inputRequests": {key: {"method": method, "params": params} for key, (method, params) in asked.items()},
        "requestState": state,
    }


def test_what_is_written_is_valid_for_the_sdk() -> None:
    requests = {
        "a": PeerRequest("elicitation/create", raw(QUESTION), Told()),
        "b": PeerRequest("roots/list", None, Told()),
    }
    found = mcp_types.InputRequiredResult.model_validate_json(asking_result(requests, "s"))
    assert set(found.input_requests or ()) == {"a", "b"}
    assert found.request_state == "s"


@pytest.mark.parametrize(
    ("method", "response", "good"),
    [
        ("elicitation/create", ACCEPTED, True),
        ("elicitation/create", {"action": "decline"}, True),
        ("elicitation/create", {"action": "cancel", "content": None, "_meta": {}}, True),
        ("elicitation/create", {"action": "ACCEPT"}, False),
        ("elicitation/create", {"action": "accept", "content": [1]}, False),
        ("elicitation/create", {}, False),
        ("sampling/createMessage", SAMPLED, True),
        ("sampling/createMessage", {**SAMPLED, "content": [{"type": "tool_use"}], "x": 1}, True),
        ("sampling/createMessage", {**SAMPLED, "content": "Paris"}, False),
        ("sampling/createMessage", {"role": "assistant"}, False),
        ("roots/list", ROOTS, True),
        ("roots/list", {"roots": []}, True),
        ("roots/list", {"roots": None}, False),
        ("roots/list", 12345, False),
        ("roots/list", None, False),
        ("tools/call", {}, False),
    ],
)
def test_an_answer_has_what_its_method_asks_for(method: str, response: object, good: bool) -> None:
    assert fits(method, raw(response)) is good


def test_answers_are_an_object_or_nothing_at_all() -> None:
    assert responses_in({}) == {}
    assert responses_in({"inputResponses": raw({"k": 1})}) == {"k": Raw(b"1")}
    wrongs: list[Any] = [None, [], 7, "x"]
    for wrong in wrongs:
        with pytest.raises(msgspec.MsgspecError):
            responses_in({"inputResponses": raw(wrong)})


def test_a_state_is_a_text() -> None:
    assert state_in({}) is None
    assert state_in({"requestState": raw("s")}) == "s"
    assert state_in({"requestState": Raw(rb'"\u0073"')}) == "s", "however it is written"
    for other in (None, 7, ["s"]):
        assert state_in({"requestState": raw(other)}) is None


def test_what_was_given_for_one_tool_goes_to_no_other() -> None:
    given = Round("alpha", b'"name":"echo",', "alpha/echo")

    def forward(server: str, tool: str) -> Forward:
        return Forward(server=server, name="", head=b'"name":"%b",' % tool.encode(), arguments=b"{}", label="")

    given.require(forward("alpha", "echo"))
    for elsewhere in (forward("beta", "echo"), forward("alpha", "delete")):
        with pytest.raises(UpstreamUnavailable, match=r"alpha/echo is .* not sent again"):
            given.require(elsewhere)
