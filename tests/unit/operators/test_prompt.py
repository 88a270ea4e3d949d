"""What operators get who ask for a prompt, and what its server is sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from daemon.facts import Switched
from daemon.model import Kind
from tests.unit.operators.offering import offer
from tests.unit.operators.stage import OperatorStage

if TYPE_CHECKING:
    import trio


async def test_a_prompt_is_passed_on_unopened(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    offer(daemon.stage, "alpha", Kind.PROMPT, "review", arguments=[{"name": "branch", "required": True}])
    client = await daemon.connect(nursery)
    await client.ask("prompt", {"server": "alpha", "name": "review", "arguments": {"branch": "main"}})
    sent = await daemon.alpha.wait_sent()
    assert sent.call.method == "prompts/get"
    members = json.loads(b"{%b}" % b"".join(sent.call.params))
    assert members == {"name": "review", "arguments": {"branch": "main"}}
    daemon.stage.answer(sent, b'{ "messages":[] }')
    assert await client.line() == b'{"jsonrpc":"2.0","id":1,"result":{ "messages":[] }}'


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("reviw", {}, "has no prompt 'reviw'. Did you mean review?"),
        ("review", {}, "prompt review needs branch"),
        ("review", {"branch": "x", "bramch": "y"}, "has no 'bramch': did you mean 'branch'?"),
        ("off", {}, "`mcpd enable alpha/prompt:off` switches it on again"),
    ],
)
async def test_what_cannot_work_is_refused_before_it_is_sent(
    nursery: trio.Nursery, name: str, arguments: dict[str, str], said: str
) -> None:
    daemon = OperatorStage()
    described = [{"name": "branch", "required": True}, {"name": "style"}]
    offer(daemon.stage, "alpha", Kind.PROMPT, "review", "off", arguments=described)
    daemon.stage.learn(Switched(off=frozenset({("alpha", "prompt:off")})))
    client = await daemon.connect(nursery)
    answer = await client.request("prompt", {"server": "alpha", "name": name, "arguments": arguments})
    assert said in answer["error"]["message"]
    assert not daemon.alpha.sent


async def test_a_server_that_has_not_listed_is_asked_all_the_same(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    client = await daemon.connect(nursery)
    await client.ask("prompt", {"server": "alpha", "name": "any"})
    daemon.stage.refuse(await daemon.alpha.wait_sent(), b'{"code":-32602,"message":"no such prompt"}')
    assert "no such prompt (-32602)" in (await client.get())["error"]["message"]
