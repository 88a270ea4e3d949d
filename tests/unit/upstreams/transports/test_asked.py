"""What one server has asked: each request is answered once, under its own id, and only some are open."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from daemon.upstreams.transports.server_connection import MAX_BYTES, MAX_SERVER_REQUESTS, RequestsOfServer
from daemon.wire.outbox import Outbox
from daemon.wire.requests import Peer, PeerRequest
from tests.unit.wire.fakes import RecordingHandler, ScriptedLink


class Scene:
    """A server that asks."""

    def __init__(self) -> None:
        outbox = Outbox()
        self.link = ScriptedLink(outbox)
        self.asked = RequestsOfServer(Peer(self.link, outbox, RecordingHandler(), strict=False))

    def ask(self, request_id: str = "1", method: str = "roots/list") -> PeerRequest | None:
        return self.asked.take(request_id.encode(), method, None)

    def taken(self, request_id: str = "1") -> PeerRequest:
        """A request that is open now."""
        request = self.ask(request_id)
        assert request is not None
        return request

    def told(self) -> list[dict[str, Any]]:
        """What the server was answered since."""
        self.link.flush()
        found = [json.loads(frame) for frame in self.link.sent]
        self.link.sent.clear()
        return found


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda request: request.answer(b'{"roots":[]}'), {"result": {"roots": []}}),
        (lambda request: request.refuse(-1, "no"), {"error": {"code": -1, "message": "no"}}),
        (lambda request: request.refuse_as(b'{"code":2}'), {"error": {"code": 2}}),
    ],
)
async def test_an_answer_goes_back_under_the_id_that_the_server_gave(
    answer: Callable[[PeerRequest], None], told: dict[str, Any]
) -> None:
    scene = Scene()
    request = scene.taken('"a-1"')
    assert len(scene.asked) == 1
    answer(request)
    answer(request)
    assert scene.told() == [{"jsonrpc": "2.0", "id": "a-1", **told}]
    assert len(scene.asked) == 0


async def test_progress_goes_back_as_a_notification() -> None:
    scene = Scene()
    request = scene.taken()
    request.report({"progressToken": Raw(b'"t"'), "progress": Raw(b"1")})
    assert scene.told()[0]["params"] == {"progressToken": "t", "progress": 1}


async def test_a_ping_is_answered_and_what_no_client_is_asked_is_refused() -> None:
    scene = Scene()
    assert scene.ask("1", "ping") is None
    assert scene.ask("2", "tools/list") is None
    pong, refused = scene.told()
    assert pong == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert refused["error"]["code"] == -32601


async def test_an_id_that_is_in_use_is_refused_and_what_had_it_goes_on() -> None:
    scene = Scene()
    first = scene.taken()
    assert scene.ask() is None
    assert "already in flight" in scene.told()[0]["error"]["message"]
    assert first.is_open


async def test_a_flood_is_refused_at_once_until_there_is_room() -> None:
    scene = Scene()
    requests = [scene.taken(str(number)) for number in range(MAX_SERVER_REQUESTS)]
    assert scene.ask("1000") is None
    assert f"{MAX_SERVER_REQUESTS} requests of this server are open" in scene.told()[0]["error"]["message"]
    requests[5].answer(b"{}")
    assert scene.ask("1000") is not None


async def test_what_is_open_has_so_many_bytes_together_but_one_of_any_size_is_taken() -> None:
    scene, long = Scene(), Raw(b'"' + b"x" * MAX_BYTES + b'"')
    first = scene.asked.take(b"1", "roots/list", long)
    assert first is not None
    assert scene.ask("2") is None
    assert f"over {MAX_BYTES} bytes" in scene.told()[0]["error"]["message"]
    first.answer(b"{}")
    assert scene.ask("2") is not None


async def test_the_server_can_take_a_request_back() -> None:
    scene, why = Scene(), list[str]()
    request = scene.taken('"x"')
    request.on_withdrawn = why.append
    for params in (b'{"requestId":"y"}', b"{}", b"[]", b'{"requestId":"x"}', b'{"requestId":"x"}'):
        scene.asked.withdraw(Raw(params))
    request.answer(b"{}")
    assert why == ["the server has cancelled it"]
    assert scene.told() == []


async def test_all_end_with_the_connection() -> None:
    scene, why = Scene(), list[str]()
    for number in range(3):
        request = scene.taken(str(number))
        request.on_withdrawn = why.append
    scene.asked.lose_all("gone")
    assert why == ["gone"] * 3
    assert (len(scene.asked), scene.told()) == (0, [])
