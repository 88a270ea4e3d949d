"""Requests other than calls fail as JSON-RPC has it: what is wrong with them by its code, all else as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.errors import (
    CallError,
    Overloaded,
    PromptDisabled,
    ResourceDisabled,
    UnknownPrompt,
    UnknownResource,
    UpstreamUnavailable,
)
from daemon.model import Kind
from tests.fakes_upstream import MODERN, Stage

if TYPE_CHECKING:
    import trio

INTERNAL, PARAMS, NO_RESOURCE = -32603, -32602, -32002


@pytest.mark.parametrize(
    ("error", "code", "modern"),
    [
        (UnknownPrompt, PARAMS, PARAMS),
        (PromptDisabled, PARAMS, PARAMS),
        (UnknownResource, NO_RESOURCE, PARAMS),
        (ResourceDisabled, NO_RESOURCE, PARAMS),
        (UpstreamUnavailable, INTERNAL, INTERNAL),
        (Overloaded, INTERNAL, INTERNAL),
    ],
)
async def test_an_error_has_its_code_its_text_and_its_details(
    nursery: trio.Nursery, error: type[CallError], code: int, modern: int
) -> None:
    stage = Stage()
    for kind in (Kind.RESOURCE, Kind.PROMPT, Kind.TEMPLATE):
        for server in ("alpha", "beta"):
            stage.offers(server, kind)
    stage.offers("alpha", Kind.PROMPT, "p")
    stage.alpha.refusal = error("What happened. What to do.", detail=7)
    client = await stage.client(nursery)
    for meta, wanted in (({}, code), ({"_meta": MODERN}, modern)):
        answer = await client.request("prompts/get", {"name": "p", **meta})
        assert answer["error"] == {
            "code": wanted,
            "message": f"{error.code}: What happened. What to do.",
            "data": {"code": error.code, "detail": 7},
        }
    assert [each[3] for each in stage.log.notes] == [error.code] * 2


async def test_a_request_that_is_in_flight_is_not_taken_twice(nursery: trio.Nursery) -> None:
    stage = Stage()
    stage.offers("alpha", Kind.PROMPT, "p")
    client = await stage.client(nursery)
    await client.ask("prompts/get", {"name": "p"})
    await stage.alpha.wait_sent()
    assert (await client.request("prompts/get", {"name": "p"}))["error"]["code"] == -32600


async def test_a_request_is_logged_and_counted_without_what_it_was_given(nursery: trio.Nursery) -> None:
    stage = Stage()
    stage.offers("alpha", Kind.PROMPT, "p")
    stage.offers("alpha", Kind.RESOURCE, "file:///listed")
    client = await stage.client(nursery)
    asked = [
        ("prompts/get", {"name": "p", "arguments": {"password": "hunter2"}}, "alpha/prompt:p"),
        ("resources/read", {"uri": "file:///listed"}, "alpha/resource:file:///listed"),
        ("resources/read", {"uri": "mcpd://alpha/x%3Ahunter2"}, "alpha/resource"),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}}, "alpha/completion/complete"),
    ]
    for number, (method, params, label) in enumerate(asked, 1):
        await client.ask(method, params)
        sent = await stage.alpha.wait_sent(number)
        assert "hunter2" not in repr(sent.exchange)
        stage.answer(sent, b"{}")
        await client.get()
        assert stage.log.notes[-1][1] == label
    # It is counted apart from calls of tools.
    assert (stage.alpha.recorded, stage.tally.tools) == ([], {})
