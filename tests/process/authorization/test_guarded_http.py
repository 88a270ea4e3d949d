"""Where requests of a login go, and what is taken in of their answers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from unittest.mock import create_autospec

import httpx2
import pytest
import trio
import trio.testing

from daemon.authorization.guarded_http import ANSWER_SECONDS, UnsafeAddress, guarded_transport, refuse_unsafe
from daemon.authorization.redirect import MAX_CONNECTIONS, MAX_REQUEST, Outcome, Redirect, listen
from tests.process.authorization.serving import fetch
from tests.unit.cases import cases
from tests.waiting import WAIT, background, in_time

PUBLIC = "93.184.216.34"


def leads_to(*addresses: str) -> None:
    """Have every name lead to these addresses."""
    names = create_autospec(trio.abc.HostnameResolver, instance=True)
    names.getaddrinfo.return_value = [(2, 1, 6, "", (each, 0)) for each in addresses]
    trio.socket.set_custom_hostname_resolver(names)


@asynccontextmanager
async def client(
    answer: Callable[[httpx2.Request], httpx2.Response], *, local: bool = False
) -> AsyncIterator[httpx2.AsyncClient]:
    """A guarded client of a server that is a function."""
    guard = guarded_transport(httpx2.MockTransport(answer), local=local)
    async with httpx2.AsyncClient(transport=guard) as made:
        yield made


def fine(request: httpx2.Request) -> httpx2.Response:
    told = (str(request.url), request.headers["host"], request.extensions["sni_hostname"])
    return httpx2.Response(200, json=told)


class Endless(httpx2.AsyncByteStream):
    """A body without an end."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536


@cases("url", "local", "why")
def test_some_urls_are_refused_without_a_look(url: str, local: bool, why: str) -> None:
    with pytest.raises(UnsafeAddress, match=why) as caught:
        refuse_unsafe(httpx2.URL(url), local=local)
    assert "canary" not in str(caught.value)


def test_others_are_not() -> None:
    for url in ("https://login.example/x", "http://127.0.0.1:8/", "http://localhost/", "http://[::1]/"):
        refuse_unsafe(httpx2.URL(url), local=True)


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "fe80::1%eth0", "::ffff:169.254.169.254", "100.100.100.200", "fd00:ec2::254",
     "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "127.0.0.1",
     "::1", "::ffff:127.0.0.1"],
)  # fmt: skip
async def test_a_name_that_leads_somewhere_else_is_not_followed(address: str) -> None:
    leads_to(PUBLIC, address)
    async with client(fine) as guarded:
        with pytest.raises(UnsafeAddress, match="resolves to"):
            await guarded.get("https://login.example/")


async def test_a_request_goes_to_the_address_that_was_looked_at_under_the_name_that_was_meant() -> None:
    leads_to(PUBLIC)
    async with client(fine) as guarded:
        response = await guarded.get("https://login.example:8443/token")
    assert response.json() == [f"https://{PUBLIC}:8443/token", "login.example:8443", "login.example"]


async def test_the_next_address_is_tried_where_the_first_cannot_be_reached() -> None:
    leads_to("2001:db8::1", PUBLIC)

    def second(request: httpx2.Request) -> httpx2.Response:
        if request.url.host != PUBLIC:
            raise httpx2.ConnectError("no route")
        return httpx2.Response(200)

    async with client(second) as guarded:
        assert (await guarded.post("https://login.example/", data={"a": "b"})).status_code == 200
    leads_to()
    async with client(second) as guarded:
        with pytest.raises(httpx2.ConnectError, match="no address"):
            await guarded.get("https://login.example/")


async def test_what_is_too_much_is_not_taken_in() -> None:
    async with client(lambda _: httpx2.Response(200, stream=Endless()), local=True) as guarded:
        with pytest.raises(httpx2.ReadError, match="the answer has more than"):
            await guarded.get("http://127.0.0.1/")


class Dripping(httpx2.AsyncByteStream):
    """A body of which a byte comes every second."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await trio.sleep(1)
            yield b" "


@pytest.mark.parametrize("silent", [True, False])
async def test_an_answer_that_takes_too_long_is_given_up(
    silent: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async def slow(_: httpx2.Request) -> httpx2.Response:
        if silent:
            await trio.sleep_forever()
        return httpx2.Response(200, stream=Dripping())

    begun = trio.current_time()
    guard = guarded_transport(httpx2.MockTransport(slow), local=True)
    async with httpx2.AsyncClient(transport=guard, timeout=None) as guarded:
        with pytest.raises(httpx2.ReadTimeout, match="no whole answer within"):
            await guarded.get("http://127.0.0.1/")
    assert trio.current_time() - begun < 2 * ANSWER_SECONDS


# --- the listener that browsers come back to, and whatever else comes to it ----------------------------------


@asynccontextmanager
async def listened() -> AsyncIterator[Redirect]:
    async with background() as nursery:
        redirect = await listen(nursery, None)
        redirect.state = "state"
        yield redirect


async def sent(redirect: Redirect, request: bytes) -> bytes:
    """What a connection is answered before it is closed."""
    with trio.fail_after(WAIT):
        stream = await trio.open_tcp_stream("127.0.0.1", redirect.port)
        async with stream:
            await stream.send_all(request)
            return b"".join([chunk async for chunk in stream])


async def test_the_first_answer_counts_and_not_a_look_ahead_and_its_page_is_kept_by_nobody() -> None:
    async with listened() as redirect:
        rest = b" /callback?code=first&state=state&iss=x HTTP/1.1\r\nHost: x\r\n\r\n"
        for method in (b"HEAD", b"POST", b"OPTIONS"):
            assert (await sent(redirect, method + rest)).startswith(b"HTTP/1.1 405")
        head, _, page = (await sent(redirect, b"GET" + rest)).partition(b"\r\n\r\n")
        for header in (b"cache-control: no-store", b"default-src 'none'", b"referrer-policy: no-referrer"):
            assert header in head.lower()
        assert (head[:12], Outcome.TAKEN.text.encode() in page) == (b"HTTP/1.1 200", True)
        status, text = await fetch(f"{redirect.url}?code=second&state=state")
        assert (status, Outcome.AGAIN.text in text) == (409, True)
        assert await redirect.answer() == {"code": "first", "state": "state", "iss": "x"}


@pytest.mark.parametrize(
    "request_sent",
    [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET /callback HTTP/1.1\r\nX: " + b"x" * (MAX_REQUEST + 1)],
)
async def test_what_is_no_request_gets_no_page(request_sent: bytes) -> None:
    async with listened() as redirect:
        # What was not read is thrown away together with the connection.
        with suppress(trio.BrokenResourceError):
            assert await sent(redirect, request_sent) == b""
        assert (await fetch(f"{redirect.url}?code=x&state=state"))[0] == 200


async def test_connections_that_say_nothing_keep_nobody_out() -> None:
    async with listened() as redirect, trio.open_nursery() as nursery:
        idle = [await trio.open_tcp_stream("127.0.0.1", redirect.port) for _ in range(3 * MAX_CONNECTIONS)]
        assert (await in_time(fetch(f"{redirect.url}?code=x&state=state"), WAIT))[0] == 200
        for each in idle:
            nursery.start_soon(each.aclose)


async def test_before_there_is_a_link_nothing_answers_it() -> None:
    async with listened() as redirect:
        redirect.state = None
        for state in ("", "&state=", "&state=None"):
            assert redirect.take(f"code=x{state}") is Outcome.OTHER_LOGIN
