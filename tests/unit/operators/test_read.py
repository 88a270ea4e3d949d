"""What operators get who read a resource, and what its server is sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from daemon.facts import Switched
from tests.unit.operators.stage import OperatorStage

if TYPE_CHECKING:
    import trio


async def test_a_resource_is_passed_on_unopened_listed_or_not(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    client = await daemon.connect(nursery)
    await client.ask("read", {"server": "alpha", "uri": 'x:"y"'})
    sent = await daemon.alpha.wait_sent()
    assert sent.call.method == "resources/read"
    assert json.loads(b"{%b}" % b"".join(sent.call.params)) == {"uri": 'x:"y"'}
    daemon.stage.answer(sent, b'{ "contents":[] }')
    assert await client.line() == b'{"jsonrpc":"2.0","id":1,"result":{ "contents":[] }}'


async def test_what_is_switched_off_is_not_read(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    daemon.stage.learn(Switched(off=frozenset({("alpha", "resource:x:y")})))
    client = await daemon.connect(nursery)
    answer = await client.request("read", {"server": "alpha", "uri": "x:y"})
    assert "`mcpd enable alpha/resource:x:y`" in answer["error"]["message"]
    daemon.stage.learn(Switched(off=frozenset({("alpha", "")})))
    answer = await client.request("read", {"server": "alpha", "uri": "x:z"})
    assert "server alpha is switched off; `mcpd enable alpha`" in answer["error"]["message"]
    assert not daemon.alpha.sent
