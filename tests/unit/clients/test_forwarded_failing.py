"""Requests other than calls on their way to a server: they fail as JSON-RPC has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from daemon.clients.requests.forwarding import ForwardedRequest
from daemon.errors import UnknownTool, UpstreamLost
from daemon.surfaces.surface import Action, Forward, View
from tests.unit.clients.asking import greeted, on_full_surface

if TYPE_CHECKING:
    import trio

    from tests.fakes_upstream import Guest, Stage

GET = Forward(
    server="alpha", name="p", method="prompts/get", head=b'"name":', arguments=b'"p"', label="alpha/p"
)


def route_to_alpha(view: View) -> Action:
    del view
    return GET


async def forwarded(stage: Stage, nursery: trio.Nursery, route: Any = route_to_alpha) -> Guest:
    """A client asks, as the methods of prompts and resources do it."""
    guest = await greeted(stage, nursery)
    connection = guest.session._connection
    request = connection.attachments.own.request(b"7", 0)
    made = ForwardedRequest(
        calls=connection.calls,
        request=request,
        name="p",
        given=b"{}",
        started=0.0,
        label="prompts/get",
        route=route,
        kinds=(),
    )
    connection.dispatch.accept(made, {})
    stage.outbox.flush()
    return guest


async def test_it_goes_where_its_route_says_and_its_result_passes_untouched(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await forwarded(stage, nursery)
    sent = stage.alpha.sent[0]
    assert sent.call.method == "prompts/get"
    assert b"".join(map(bytes, sent.call.params)) == b'"name":"p"'
    stage.answer(sent, b'{"messages" : []}')
    assert await guest.client.line() == b'{"jsonrpc":"2.0","id":7,"result":{"messages" : []}}'


async def test_its_servers_error_passes_as_an_error(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await forwarded(stage, nursery)
    error = {"code": -32002, "message": "no such prompt", "data": {"uri": "x"}}
    stage.refuse(stage.alpha.sent[0], json.dumps(error).encode())
    assert (await guest.client.get())["error"] == error


async def test_a_loss_is_an_error_with_its_code(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await forwarded(stage, nursery)
    stage.lose(stage.alpha.sent[0], UpstreamLost("it has gone", server="alpha"))
    error = (await guest.client.get())["error"]
    assert (error["code"], error["data"]["code"]) == (-32603, "UpstreamLost")


async def test_what_goes_nowhere_is_refused_and_logged_by_its_method(nursery: trio.Nursery) -> None:
    def nowhere(view: View) -> Action:
        del view
        raise UnknownTool("there is no prompt p")

    stage = on_full_surface()
    guest = await forwarded(stage, nursery, nowhere)
    assert "there is no prompt p" in (await guest.client.get())["error"]["message"]
    assert stage.log.notes[-1][1] == "prompts/get"
