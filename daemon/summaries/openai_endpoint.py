"""A model endpoint reached through the `openai` client; everything it sends and reads passes through `Guarded`.

- The async client runs under trio, and a cancelled question closes its connection at once. No thread waits. -
Of the client's headers only those in `SENT` go out: it adds what it finds in OPENAI_* variables, such as
organisations and keys that may belong to another endpoint, and describes the platform. - No proxy from the
environment and no redirects, as with HTTP servers: a forgotten variable must not send the key to somebody else.
- Retries are ours (`actors.summarizer`). Only the body of a 200 is read, up to `MAX_ANSWER`, and requested
uncompressed, so that a few bytes cannot unpack into many. - Before a question over TLS, one connection is made
and dropped: the library leaks a socket when it is cancelled during a handshake, so a hanging handshake must not
be its own. Errors are clearer this way, too.
"""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from typing import Any

import httpx2
import msgspec
import openai
import trio

from daemon.config.config_model import Summaries
from daemon.errors import RunError
from daemon.host.sockets import reason
from daemon.protocol import IDENTITY, decoded
from daemon.summaries.endpoint import Answered, EndpointFault, Failing, fault_of_status, read_retry_after
from daemon.upstreams.transports.network import connect as reach
from daemon.upstreams.transports.network import host_and_port

MAX_ANSWER = 256 * 1024
"""Most bytes of an answer: twenty tools take about 5 KiB, a model that thinks aloud perhaps 50."""

SENT = frozenset({"accept", "content-type", "content-length", "host"})
"""Headers of the client that are passed on; our own are added."""

SHORTEST_KEY = 16
"""Fewest characters of a key that answers are searched for: where no key is needed, people put any word."""

MAX_LIST = 4 * 1024 * 1024
"""Most bytes of a list of models: endpoints that resell list some 500, with a page about each."""

LIST_SECONDS = 10.0
"""Seconds that an endpoint has to list its models: it computes nothing, and an operator waits."""

MAX_MODELS = 2000
"""Most models that are shown: several times as many as the largest endpoints offer."""

MAX_MODEL_NAME = 200
"""Most characters of the name of a model."""

NO_KEY = "none"
"""The client's placeholder. Only the transport knows the key, so no error of the client can show it."""


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: Any = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_COMPLETION = msgspec.json.Decoder(_Completion)
_MODELS = msgspec.json.Decoder(_Models)


class OpenAIEndpoint:
    """A model behind `/chat/completions`."""

    def __init__(self, summaries: Summaries, client: openai.AsyncOpenAI, place: str) -> None:
        self._summaries = summaries
        self._client = client
        self._place = place

    async def models(self) -> tuple[str, ...]:
        """The names of the endpoint's models (`GET /models`), in alphabetical order; raises `EndpointFault`."""
        with trio.move_on_after(LIST_SECONDS):
            try:
                response = await self._client.models.with_raw_response.list()
            except openai.OpenAIError as error:
                raise self._broken(error) from None
            # Some are megabytes long.
            return await trio.to_thread.run_sync(self._names, response.content)
        raise EndpointFault(
            Failing.TIMEOUT, f"{self._place} has not listed its models within {LIST_SECONDS:g} s"
        )

    async def ask(self, instructions: str, question: str) -> Answered:
        """The model's answer; raises `EndpointFault`."""
        with trio.move_on_after(self._summaries.timeout):
            return self._answered(await self._ask(instructions, question))
        raise EndpointFault(
            Failing.TIMEOUT,
            f"{self._place} has not answered within {self._summaries.timeout:g} s (summaries.timeout)",
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _ask(self, instructions: str, question: str) -> bytes:
        try:
            response = await self._client.chat.completions.with_raw_response.create(
                model=self._summaries.model,
                messages=[{"role": "system", "content": instructions}, {"role": "user", "content": question}],
            )
        except openai.OpenAIError as error:
            raise self._broken(error) from None
        return response.content

    def _broken(self, error: openai.OpenAIError) -> EndpointFault:
        # The transport raises `EndpointFault`: this is a broken TLS connection, or a bug in the library.
        return EndpointFault(Failing.CUT_OFF, f"the question to {self._place} failed: {type(error).__name__}")

    def _names(self, body: bytes) -> tuple[str, ...]:
        if (listed := decoded(_MODELS.decode, body)) is None:
            raise EndpointFault(Failing.UNREADABLE, f"the answer of {self._place} is no list of models")
        names = {
            each.id for each in listed.data if each.id.isprintable() and 0 < len(each.id) <= MAX_MODEL_NAME
        }
        return tuple(sorted(name for name in names if 0 < len(name) <= MAX_MODEL_NAME)[:MAX_MODELS])

    def _answered(self, body: bytes) -> Answered:
        if (completion := decoded(_COMPLETION.decode, body)) is None:
            raise EndpointFault(Failing.UNREADABLE, f"the answer of {self._place} is no chat completion")
        text = completion.choices[0].message.content if completion.choices else None
        if not text:
            raise EndpointFault(Failing.UNREADABLE, f"the answer of {self._place} has no text")
        read, written = (_count(completion.usage, name) for name in ("prompt_tokens", "completion_tokens"))
        return Answered(text=text, tokens_read=read, tokens_written=written)


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and value >= 0 else None


class Guarded(httpx2.AsyncBaseTransport):
    """A transport that limits what is sent and what is read; raises nothing but `EndpointFault`."""

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, tls: ssl.SSLContext, authorization: str, place: str
    ) -> None:
        self._inner = inner
        self._tls = tls
        self._authorization = {"authorization": authorization} if authorization else {}
        secret = authorization.rpartition(" ")[2].encode()
        self._secret = secret if len(secret) >= SHORTEST_KEY else None
        self._place = place

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a question and read the whole answer; raises `EndpointFault`."""
        try:
            await self._try_tls(request.url)
            response = await self._inner.handle_async_request(self._outgoing(request))
            try:
                body = await self._body(response, MAX_LIST if request.method == "GET" else MAX_ANSWER)
            finally:
                await response.aclose()
        except RunError as error:
            raise EndpointFault(Failing.UNREACHABLE, str(error)) from None
        except httpx2.TransportError as error:
            raise self._fault(error) from None
        return httpx2.Response(
            response.status_code, headers={"content-type": "application/json"}, content=body, request=request
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()

    async def _try_tls(self, url: httpx2.URL) -> None:
        if url.scheme == "https":
            stream = await reach(*host_and_port(str(url), "https"), self._tls)
            await trio.aclose_forcefully(stream)

    def _outgoing(self, request: httpx2.Request) -> httpx2.Request:
        """A copy of the request with our headers: the client reads its own again once the answer arrives."""
        sent = {name: value for name, value in request.headers.items() if name in SENT}
        own = {"user-agent": "{name}/{version}".format(**IDENTITY), "accept-encoding": "identity"}
        headers = {**sent, **own, **self._authorization}
        return httpx2.Request(
            request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions
        )

    async def _body(self, response: httpx2.Response, most: int) -> bytes:
        if response.status_code != httpx2.codes.OK:
            wait = read_retry_after(response.headers.get("retry-after"), time.time())
            raise fault_of_status(response.status_code, self._place, wait)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise EndpointFault(
                Failing.UNREADABLE, f"{self._place} compresses its answers against mcpd's request"
            )
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > most:
                text = f"the answer of {self._place} is over {most} bytes"
                raise EndpointFault(Failing.TOO_LARGE, text)
        if self._secret is not None and self._secret in body:
            # Parts of the answer are shown, logged and stored.
            raise EndpointFault(
                Failing.UNREADABLE, f"the answer of {self._place} repeats the key that it was sent"
            )
        return bytes(body)

    def _fault(self, error: httpx2.TransportError) -> EndpointFault:
        if isinstance(error, httpx2.ConnectError):
            return EndpointFault(Failing.UNREACHABLE, f"cannot connect to {self._place}: {reason(error)}")
        return EndpointFault(Failing.CUT_OFF, f"{self._place} broke off in the middle: {type(error).__name__}")


def connect(summaries: Summaries, key: str | None, place: str) -> OpenAIEndpoint:
    """Make the configured endpoint. Reads the system's certificates: call it in a worker thread."""
    tls = ssl.create_default_context()
    wire = httpx2.AsyncHTTPTransport(
        verify=tls,
        trust_env=False,
        # Minutes may pass between questions: a kept connection would be gone, and fail the next one.
        limits=httpx2.Limits(max_connections=1, max_keepalive_connections=0),
    )
    client = openai.AsyncOpenAI(
        base_url=summaries.base_url,
        api_key=NO_KEY,
        organization="",
        project="",
        max_retries=0,
        timeout=None,
        http_client=httpx2.AsyncClient(
            transport=Guarded(wire, tls, _authorization(summaries.base_url, key), place),
            timeout=None,
            follow_redirects=False,
            trust_env=False,
        ),
    )
    return OpenAIEndpoint(summaries, client, place)


def _authorization(base_url: str, key: str | None) -> str:
    if key is not None:
        return f"Bearer {key}"
    url = httpx2.URL(base_url)
    named = f"{url.username}:{url.password}".encode()
    return f"Basic {b64encode(named).decode()}" if url.userinfo else ""
