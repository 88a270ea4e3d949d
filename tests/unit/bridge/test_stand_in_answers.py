"""What the bridge answers in the daemon's place is what the daemon would have said."""

from __future__ import annotations

import json

import pytest
from mcp_types import CallToolResult

from daemon import errors
from daemon.bridge import stand_in
from daemon.bridge.requests import CALL
from daemon.bridge.stand_in import FULL, LOST, TORN, absent, refuse

REFUSALS = [LOST, TORN, FULL, absent("/run/mcpd.sock: ENOENT", 30.0)]


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_call_is_answered_with_a_result_that_a_model_can_read(
    refusal: tuple[str, str], *, modern: bool
) -> None:
    line = refuse(b'"\\u00e4"', CALL, refusal, modern=modern)
    assert line.startswith(b'{"jsonrpc":"2.0","id":"\\u00e4",')
    assert line.count(b"\n") == 1
    result = json.loads(line)["result"]
    assert CallToolResult.model_validate(result).is_error
    assert ("resultType" in result) == modern
    error = result["structuredContent"]["error"]
    assert result["content"][0]["text"] == f"{error['code']}: {error['message']}"
    assert (error["code"], error["message"]) == refusal


@pytest.mark.parametrize("method", [b'"tools/list"', None])
def test_anything_else_is_answered_with_an_error(method: bytes | None) -> None:
    answer = json.loads(refuse(b"5", method, LOST, modern=True))
    assert answer["id"] == 5
    assert answer["error"]["code"] == stand_in.INTERNAL_ERROR
    assert answer["error"]["data"] == {"code": "UpstreamLost"}
    assert LOST[1] in answer["error"]["message"]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_codes_are_the_daemons_own_and_texts_say_what_to_do(refusal: tuple[str, str]) -> None:
    code, text = refusal
    assert getattr(errors, code).code == code
    assert ("safe to" in text) == (code == "UpstreamUnavailable")
    assert ("unknown" in text) == (code == "UpstreamLost")


def test_a_path_of_any_characters_is_quoted() -> None:
    line = refuse(b"1", CALL, absent('/tmp/"\\\n\udcff', 30), modern=False)
    assert '/tmp/"\\\n' in json.loads(line)["result"]["content"][0]["text"]
