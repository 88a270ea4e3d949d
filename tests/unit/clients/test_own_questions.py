"""The answer to a question of mcpd's own."""

from __future__ import annotations

from daemon.clients.server_requests import UserAnswer


def test_a_result_is_kept_as_it_is_and_a_refusal_as_the_reason_why_there_is_none() -> None:
    answered, refused, failed = UserAnswer(), UserAnswer(), UserAnswer()
    assert not answered.given.is_set()
    answered.answer(memoryview(b'{"action":"accept"}'))
    refused.refuse(-32600, "no")
    failed.refuse_as(b'{"code":-1,"message":"never"}')
    assert (answered.result, answered.why) == (b'{"action":"accept"}', "")
    assert (refused.result, refused.why) == (None, "the client has not asked: no (-32600)")
    assert (failed.result, failed.why) == (None, "the client has not asked: never (-1)")
    assert answered.given.is_set()
    assert refused.given.is_set()
