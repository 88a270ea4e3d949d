"""Requests as an ASGI application gets them, and what becomes of its responses, faults included."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.abc
import trio.testing

from daemon.clients.doors.http.asgi import BODY_BYTES, WAITING_BYTES, AsgiRequest, is_console, is_own_page
from daemon.clients.doors.http.reading import Head
from daemon.wire.link import STUCK_SECONDS
from daemon.wire.outbox import Outbox
from tests.unit.cases import cases
from tests.unit.clients.doors.http.visiting import visiting
from tests.waiting import background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from daemon.clients.doors.http.asgi import Message, Receive, Send
    from daemon.clients.doors.http.http_connection import HttpExchange
    from tests.unit.clients.doors.http.visiting import HttpClient

BOUND = 300.0
"""Seconds of the virtual clock that a test may take."""

HTML = [(b"content-type", b"text/html"), (b"set-cookie", b"a=b")]


@attrs.define
class Recorded:
    """An application that notes what it was given, and answers as a test says."""

    answer: Callable[[Message, Send], Any]
    scopes: list[Message] = attrs.field(factory=list)
    bodies: list[bytes] = attrs.field(factory=list)
    ended: trio.Event = attrs.field(factory=trio.Event)
    strangers: trio.Lock = attrs.field(factory=trio.Lock)

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Nobody."""
        return False

    def revoked(self, token: str) -> None:
        """Nothing to do."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        self.bodies.append((await receive())["body"])
        try:
            await self.answer(scope, send)
        finally:
            self.ended.set()


async def whole(_scope: Message, send: Send) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": HTML})
    await send({"type": "http.response.body", "body": b"whole"})


async def stream(_scope: Message, send: Send, size: int = 1, count: int = 3) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": HTML})
    for _ in range(count):
        await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def fail(_scope: Message, _send: Send) -> None:
    raise ZeroDivisionError


async def fail_late(scope: Message, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": HTML})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise ZeroDivisionError


@pytest.fixture
async def ask() -> AsyncIterator[Callable[[Recorded], Any]]:
    """Connects a client to an application."""
    outbox = Outbox()
    async with background() as nursery:

        def serve(application: Recorded, exchange: HttpExchange) -> None:
            AsgiRequest(exchange, application, "192.0.2.7", outbox=outbox).start(nursery.start_soon)

        yield lambda application: visiting(partial(serve, application), outbox=outbox)


async def test_an_application_gets_a_request_as_it_was_sent(ask: Any) -> None:
    application = Recorded(whole)
    async with ask(application) as visit:
        answer = await visit.client.ask("POST", "/ui/a%2Fb?q=%20", {"x-name": "1"}, b"body")
    assert (answer.status, answer.body) == (404, b"whole")
    assert answer.headers["content-length"] == "5"
    (scope,) = application.scopes
    assert (scope["method"], scope["path"], scope["query_string"]) == ("POST", "/ui/a%2Fb", b"q=%20")
    assert scope["client"] == ("192.0.2.7", 0)
    assert (b"x-name", b"1") in scope["headers"]
    assert application.bodies == [b"body"]


async def test_a_stream_is_sent_as_it_comes_and_ends_its_connection(ask: Any) -> None:
    async with ask(Recorded(stream)) as visit:
        answer = await visit.client.ask("GET", "/ui")
        assert (answer.status, answer.body) == (200, b"xxx")
        assert await visit.client.is_closed()


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"content-length": str(BODY_BYTES + 1)}, 413), ({"transfer-encoding": "chunked"}, 411)],
)
async def test_a_body_that_may_be_too_long_is_refused(ask: Any, headers: dict[str, str], status: int) -> None:
    application = Recorded(whole)
    async with ask(application) as visit:
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        await visit.client.stream.send_all(f"POST /ui HTTP/1.1\r\nhost: x\r\n{fields}\r\n".encode())
        assert await _status(visit.client) == status
    assert application.scopes == []


async def _status(client: HttpClient) -> int:
    return int((await client.stream.receive_some(4096)).split()[1])


async def test_a_fault_costs_one_response_and_a_line_or_in_the_middle_its_connection(
    ask: Any, said: list[str]
) -> None:
    async with ask(Recorded(fail)) as visit:
        answer = await visit.client.ask("GET", "/ui")
        assert answer.status == 500
        assert b"see its log" in answer.body
        assert (await visit.client.ask("GET", "/ui")).status == 500
    assert len(said) == 2
    async with ask(Recorded(fail_late)) as visit:
        assert (await visit.client.ask("GET", "/ui")).body == b"half"
        assert await visit.client.is_closed()
    assert len(said) == 3


async def test_a_client_that_leaves_ends_the_task(ask: Any, said: list[str]) -> None:
    async def wait(_scope: Message, _send: Send) -> None:
        await trio.sleep_forever()

    application = Recorded(wait)
    async with ask(application) as visit:
        await visit.client.send("GET", "/ui")
        while not application.scopes:
            await trio.testing.wait_all_tasks_blocked()
        await visit.client.stream.aclose()
        await application.ended.wait()
    assert said == []


async def test_what_a_client_does_not_read_is_not_made(
    ask: Any, said: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    made = 0

    async def endless(_scope: Message, send: Send) -> None:
        nonlocal made
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            made += 10_000

    application = Recorded(endless)
    async with ask(application) as visit:
        await visit.client.send("GET", "/ui")
        began = trio.current_time()
        await application.ended.wait()
        assert trio.current_time() - began >= STUCK_SECONDS
    assert made < WAITING_BYTES + 1_000_000
    assert said == []


class Passes(trio.abc.Instrument):
    """Counts the passes of the loop."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_pages_for_strangers_begin_one_in_each_pass_of_the_loop() -> None:
    trio.lowlevel.add_instrument(passes := Passes())
    asked: list[HttpExchange] = []
    began: list[int] = []

    async def wait(_scope: Message, _send: Send) -> None:
        began.append(passes.count)
        await trio.sleep_forever()

    async with visiting(asked.append) as visit, background() as nursery:
        await visit.client.send("GET", "/ui")
        await trio.testing.wait_all_tasks_blocked()
        request = AsgiRequest(asked[0], Recorded(wait), "192.0.2.7", outbox=visit.outbox)
        for _ in range(3):
            nursery.start_soon(request.serve, b"")
        await trio.testing.wait_all_tasks_blocked()
    assert len(set(began)) == 3


@pytest.mark.parametrize(
    ("path", "is_ours"), [("/ui", True), ("/ui/x", True), ("/uix", False), ("/mcp", False), ("//ui", False)]
)
def test_pages_for_people_are_below_one_path(path: str, is_ours: bool) -> None:
    assert is_console(Head(method="GET", path=path, headers={}, peer="")) is is_ours


@cases("path", "host", "origin", "is_own")
def test_a_page_of_our_own_has_our_host_and_port(path: str, host: str, origin: str, is_own: bool) -> None:
    head = Head(method="POST", path=path, headers={"host": host}, peer="")
    assert is_own_page(head, origin) is is_own
