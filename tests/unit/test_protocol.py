"""What mcpd does to other people's results and metadata."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon import protocol
from tests.unit.cases import cases
from tests.unit.json_values import json_values


def read(answer: bytes) -> dict[str, Any]:
    value = msgspec.json.decode(answer)
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("result", "more", "completed"),
    [
        (b"{ }", b"", b'{"resultType":"complete"}'),
        (b' \n{ "a":1}', b"", b'{"resultType":"complete","a":1}'),
        (b'{"content":[{"resultType":"x"}]}', b"", b'{"resultType":"complete","content":[{"resultType":"x"}]}'),
        (b'{"resultType":"input_required"}', b"", b'{"resultType":"input_required"}'),
        (b'{"a":1, "resultType":null}', b"", b'{"a":1, "resultType":null}'),
        (b"{}", protocol.UNCACHED, b'{"resultType":"complete","ttlMs":0,"cacheScope":"private"}'),
        (b'{"resultType":"complete","ttlMs":5}', protocol.UNCACHED, b'{"resultType":"complete","ttlMs":5}'),
        *((none, b"", none) for none in (b"null", b"[]", b'"text"', b'{"a":' + b"[" * 1_000)),
    ],
)
def test_a_result_type_is_added_only_where_its_author_left_it_out(
    result: bytes, more: bytes, completed: bytes
) -> None:
    assert protocol.completed(result, more) == completed


JSON = json_values()


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_completing_changes_nothing_else(result: dict[str, object]) -> None:
    completed = read(protocol.completed(msgspec.json.encode(result)))
    assert completed == {"resultType": "complete", **result}


def test_the_params_of_a_call_keep_their_payload_raw() -> None:
    params = protocol.decode_call(
        b'{"name":"t","arguments":{"x" : 1.0},"_meta":{"progressToken":"7"},"more":1}'
    )
    assert (params.name, params.arguments, params.meta) == (
        "t",
        Raw(b'{"x" : 1.0}'),
        {"progressToken": Raw(b'"7"')},
    )
    assert params.others == {"more": Raw(b"1")}
    assert protocol.members_before(params.others) == b'"more":1,'
    bare = protocol.decode_call(b'{"name":"t"}')
    assert (bytes(bare.arguments), bare.meta) == (b"{}", None)


@pytest.mark.parametrize("params", [b"{}", b'{"name":1}', b'{"name":"t","_meta":[]}', b"[]"])
def test_params_that_are_no_call_are_refused(params: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        protocol.decode_call(params)


@pytest.mark.parametrize(
    ("params", "keys", "members"),
    [
        (None, [], {}),
        (b"{}", [], {}),
        (b'{"_meta":null}', [], {}),
        (b'{"a":[1.0],"_meta":{"x":1,"y":{}}}', ["x", "y"], {"a": Raw(b"[1.0]")}),
    ],
)
def test_the_meta_and_the_members_of_a_request_stay_raw(
    params: bytes | None, keys: list[str], members: dict[str, Raw]
) -> None:
    raw = None if params is None else Raw(params)
    assert (list(protocol.meta_of(raw)), protocol.members_of(raw)) == (keys, members)
    with pytest.raises(msgspec.MsgspecError):
        protocol.meta_of(Raw(b'{"_meta":[]}'))


def test_what_belongs_to_the_callers_own_connection_does_not_travel_on() -> None:
    kept = {"example.org/trace": Raw(b"1"), "traceparent": Raw(b'"x"')}
    own = {"progressToken": Raw(b"1"), protocol.VERSION_KEY: Raw(b'"x"'), protocol.SUBSCRIPTION_KEY: Raw(b"1")}
    assert protocol.foreign_meta({**own, **kept}) == kept


@cases("params", "wanted", raw={"params"})
def test_what_a_subscription_asks_for_is_read_however_it_is_written(
    params: bytes | None, wanted: dict[str, object]
) -> None:
    assert protocol.wanted_notifications(None if params is None else msgspec.Raw(params)) == wanted
