"""Real authorization servers, the servers they protect, a browser that agrees to everything, and a login."""

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin

import attrs
import httpx2
import msgspec
import trio
import trio.testing
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from daemon.authorization import logins
from daemon.authorization.login_process import Lines, serve
from daemon.config.config_model import OAuth
from tests.e2e.browser import Form
from tests.e2e.harness import NODE, NODE24, ROOT, free_port
from tests.waiting import WAIT, eventually

HERE = Path(__file__).parent
SDK = ROOT / ".cache" / "sdk" / "examples" / "servers" / "simple-auth"
MAX_PAGES = 20
"""Of a login in a browser."""

said = msgspec.json.Decoder(logins.Report)

Told = TypeVar("Told", bound=msgspec.Struct)


# --- servers -----------------------------------------------------------------------------------------------


@contextmanager
def child(*command: str, **environ: str) -> Iterator[str]:
    """A server in a process of its own, which prints its port; its origin."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **environ})
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], WAIT)
        port = process.stdout.readline() if ready else b""
        assert port, command
        yield f"http://127.0.0.1:{int(port)}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def oidc_provider(**options: Any) -> Iterator[str]:
    """oidc-provider, which nobody here wrote; its issuer."""
    script = str(HERE / "oidc_server.mjs")
    with child(NODE24, script, str(NODE), json.dumps(options), NODE_NO_WARNINGS="1") as origin:
        yield origin


@contextmanager
def protected_by(issuer: str, introspection: str, *scopes: str) -> Iterator[str]:
    """The url of an MCP server that takes the tokens of an authorization server."""
    script = str(HERE / "protected_server.py")
    with child(sys.executable, script, issuer, introspection, *scopes) as origin:
        yield f"{origin}/mcp"


@contextmanager
def protected(**options: Any) -> Iterator[str]:
    """An MCP server that oidc-provider protects; its url."""
    with oidc_provider(**options) as issuer, protected_by(issuer, f"{issuer}/token/introspection") as url:
        yield url


@contextmanager
def example(module: str, *args: str, host: str = "localhost") -> Iterator[str]:
    """A program of the SDK's example of authorization; its origin."""
    port = free_port()
    path = os.pathsep.join((str(SDK), str(HERE / "beside")))
    command = [sys.executable, "-m", f"mcp_simple_auth.{module}", f"--port={port}", *args]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})

    def listens() -> bool:
        with suppress(OSError), socket.create_connection((host, port)):
            return True
        return False

    try:
        eventually(listens)
        yield f"http://{host}:{port}"
    finally:
        process.kill()
        process.wait()


# --- a browser ---------------------------------------------------------------------------------------------


async def browse(url: str, *, until: str = "/callback") -> str:
    """Open a link and agree to everything; returns where the browser ends, without going there.

    Args:
        url: the link.
        until: what the path of the last address ends with; empty: the last page without a form.
    """
    async with httpx2.AsyncClient(trust_env=False, timeout=WAIT) as browser:
        response = await browser.get(url)
        for _ in range(MAX_PAGES):
            if response.next_request is not None:
                target = response.next_request.url
                if until and target.path.endswith(until):
                    return str(target)
                response = await browser.send(response.next_request)
                continue
            form = Form(response.text)
            if form.action is None:
                assert not until, response.text
                return str(response.url)
            response = await browser.post(urljoin(str(response.url), form.action), data=form.fields)
    raise AssertionError(url)


async def fetch(url: str) -> tuple[int, str]:
    """What a page at an address says."""
    async with httpx2.AsyncClient(trust_env=False, timeout=WAIT) as browser:
        response = await browser.get(url)
    return response.status_code, response.text


# --- a login -----------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Running:
    """A login that was asked for."""

    wish: logins.Wish
    tell: trio.abc.SendStream
    """Its stdin."""
    hear: trio.abc.ReceiveStream
    """Its stdout."""
    heard: bytearray = attrs.field(factory=bytearray)
    """All that it said."""
    _rest: bytearray = attrs.field(factory=bytearray)

    async def next(self) -> logins.Report | None:
        """What it says next; None when it has ended."""
        with trio.fail_after(WAIT):
            while b"\n" not in self._rest:
                chunk = await self.hear.receive_some()
                if not chunk:
                    return None
                self._rest += chunk
                self.heard += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        told: logins.Report = said.decode(line)
        return told

    async def _next(self, kind: type[Told]) -> Told:
        told = await self.next()
        assert isinstance(told, kind), told
        return told

    async def page(self) -> logins.LoginPage:
        return await self._next(logins.LoginPage)

    async def done(self) -> logins.Done:
        return await self._next(logins.Done)

    async def failed(self) -> str:
        return (await self._next(logins.Failed)).message

    async def paste(self, url: str) -> None:
        await self.tell.send_all(msgspec.json.encode(logins.Answer(url)) + b"\n")

    @property
    def kept(self) -> logins.Login | None:
        return logins.FileLogins(Path(self.wish.directory)).read(self.wish.server, self.wish.url)


def wish_of(state: Path, url: str, **wish: Any) -> logins.Wish:
    """A wish for a login, with the members of `oauth` among the others."""
    of_oauth = {field.name for field in attrs.fields(OAuth)} & wish.keys()
    oauth = OAuth(**{name: wish.pop(name) for name in of_oauth})
    return logins.Wish(server="notion", url=url, directory=str(state), oauth=oauth, **wish)


@asynccontextmanager
async def login(state: Path, url: str, **wish: Any) -> AsyncIterator[Running]:
    """A login in this process: starting one takes a second."""
    wished = wish_of(state, url, **wish)
    tell, stdin = trio.testing.memory_stream_one_way_pair()
    stdout, hear = trio.testing.memory_stream_one_way_pair()

    async def say(message: logins.Report) -> None:
        await stdout.send_all(msgspec.json.encode(message) + b"\n")

    async def run() -> None:
        await serve(Lines(stdin), say)
        stdout.close()

    await tell.send_all(msgspec.json.encode(wished) + b"\n")
    running = Running(wished, tell, hear)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        try:
            yield running
        except Exception as error:  # noqa: BLE001 - as it is, not in a group
            failure = error
        tell.close()
    if failure is not None:
        raise failure


@asynccontextmanager
async def spawned_login(state: Path, url: str, **wish: Any) -> AsyncIterator[Running]:
    """A login in a process of its own, as a daemon starts it, which must not say anything on its stderr."""
    wished = wish_of(state, url, **wish)
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "daemon.authorization.login_process"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        await process.stdin.send_all(msgspec.json.encode(wished) + b"\n")
        yield Running(wished, process.stdin, process.stdout)
        await process.stdin.aclose()
        with trio.fail_after(WAIT):
            errors = b"".join([chunk async for chunk in process.stderr])
            assert await process.wait() == 0
        assert errors == b"", errors.decode()
    finally:
        process.kill()
        await process.wait()


async def logged_in(state: Path, url: str, **wish: Any) -> logins.Login:
    """Log in, in a browser."""
    async with login(state, url, **wish) as running:
        status, text = await fetch(await browse((await running.page()).url))
        assert status == 200, text
        await running.done()
        assert running.kept is not None
        return running.kept


async def call(url: str, token: str) -> str:
    """What the tool of a protected server answers, or the status that it answers with."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "secret", "arguments": {}}}
    headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(trust_env=False, timeout=WAIT) as client:
        response = await client.post(url, json=message, headers=headers)
    if response.status_code != httpx2.codes.OK:
        return str(response.status_code)
    text: str = response.json()["result"]["content"][0]["text"]
    return text


async def tools(url: str, token: str) -> list[str]:
    """The tools of a server, for the SDK's client with a token."""
    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=WAIT, headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        return [tool.name for tool in (await client.list_tools()).tools]
