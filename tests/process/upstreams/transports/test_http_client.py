"""The HTTP client: where redirects may lead, and what bodies may become."""

from __future__ import annotations

import httpx2
import pytest
import trio

from daemon.upstreams.transports.http_client import exchange, not_followed, read_body
from tests.process.upstreams.transports.posts import Scripted, Stream
from tests.process.upstreams.transports.test_http import facing
from tests.unit.upstreams.transports.serving import Request, answer, reply, scripted


def redirecting(*targets: str, status: int = 307) -> Scripted:
    """A server that leads from one place to the next, and answers at the last."""
    left = list(targets)

    async def script(request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        if left:
            return httpx2.Response(status, headers={"location": left.pop(0)})
        return httpx2.Response(200, text=f"{request.method} {request.url} {request.read().decode()}")

    return Scripted(script)


async def ended(transport: Scripted, url: str) -> tuple[int, str, str]:
    """Where a POST comes to its end: status, body, and the redirect that was not followed."""
    async with (
        httpx2.AsyncClient(transport=transport) as client,
        exchange(client, "POST", url, {}, b"{}") as response,
    ):
        body = await read_body(response, 1000)
        assert body is not None
        return response.status_code, body.decode(), not_followed(response)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://h:1/mcp", "/mcp/"),
        ("http://h:1/mcp", "http://h:1/mcp/"),
        ("http://H/mcp", "http://h:80/mcp/"),
        ("http://h/mcp", "https://h/mcp/"),
        ("http://user:secret@h/mcp", "/mcp/"),
    ],
)
async def test_a_redirect_within_the_origin_is_followed_with_its_message(url: str, target: str) -> None:
    status, body, left = await ended(redirecting(target), url)
    assert (status, left) == (200, "")
    assert body.startswith("POST ")
    assert body.endswith("/mcp/ {}")


@pytest.mark.parametrize(
    ("url", "target", "status"),
    [
        ("http://h/mcp", "http://other/mcp/", 307),
        ("http://h/mcp", "http://h:81/mcp/", 307),
        ("http://h:1/mcp", "https://h:1/mcp/", 307),
        ("https://h/mcp", "http://h/mcp/", 307),
        ("http://h/mcp", "http://user:secret@h/mcp/", 307),
        ("http://h/mcp", "/mcp/?key=secret", 302),
    ],
)
async def test_any_other_is_not_and_is_named_without_its_secrets(url: str, target: str, status: int) -> None:
    transport = redirecting(target, status=status)
    ended_with, _, left = await ended(transport, url)
    assert (ended_with, len(transport.sent)) == (status, 1)
    assert "/mcp/ that is not followed" in left
    assert "secret" not in left


async def test_a_body_over_the_limit_is_not_read_to_its_end() -> None:
    response = httpx2.Response(200, stream=Stream(b"x" * 600, b"x" * 600))
    with trio.fail_after(30):
        assert await read_body(response, 1000) is None


async def test_credentials_do_not_follow_a_redirect_to_another_origin() -> None:
    met: list[Request] = []

    async def meet(request: Request) -> bytes:
        met.append(request)
        return answer(request, {})

    async with trio.open_nursery() as nursery:
        elsewhere = await scripted(nursery, meet)

        async def redirect(request: Request) -> bytes:
            return reply(b"", "307 Temporary Redirect", location=f"http://127.0.0.1:{elsewhere}/mcp?key=secret")

        async with facing(redirect, headers={"Authorization": "Bearer t"}) as client:
            caller = await client.call("echo")
            assert f"127.0.0.1:{elsewhere}" in caller.error["message"]
            assert "secret" not in caller.error["message"]
        nursery.cancel_scope.cancel()
    assert not met
