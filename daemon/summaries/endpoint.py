"""A model endpoint with OpenAI's HTTP API, its faults, and operators' questions to it.

- It uses no proxy of the environment and follows no redirects, as with HTTP servers: a forgotten variable must
  not send the key to somebody else.
- mcpd itself retries (`actors.summarizer`). Only the body of a 200 is read, up to `MAX_ANSWER`, and requested
  uncompressed, so that a few bytes cannot unpack into many.
- Before a question over TLS, mcpd makes and drops a connection: the library leaks a socket when it is cancelled
  during a handshake, so a hanging handshake must not be the library's. Errors are clearer this way, too.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from daemon.config.config_model import Config, Summaries
from daemon.errors import CannotStart, InvalidArguments, McpdError, RunError
from daemon.host.sockets import reason
from daemon.kit.later import later
from daemon.protocol import IDENTITY, decoded
from daemon.summaries.prompt import INSTRUCTIONS, SAMPLE, SENDS, UnreadableAnswer, message, read
from daemon.upstreams.transports.network import connect as reach
from daemon.upstreams.transports.network import host_and_port, place_of

if TYPE_CHECKING:
    import httpx2

    from daemon.upstreams.transports.failures import retry_after
else:
    httpx2, retry_after = later("httpx2"), later("daemon.upstreams.transports.failures", "retry_after")

MAX_ANSWER = 256 * 1024
"""Most bytes of an answer: twenty tools take about 5 KiB, a model that thinks aloud perhaps 50."""

SHORTEST_KEY = 16
"""Fewest characters of a key for which answers are searched: people enter any word if no key is needed."""

MAX_LIST = 4 * 1024 * 1024
"""Most bytes of a list of models: endpoints that resell list some 500, with a page about each."""

LIST_SECONDS = 10.0
"""Seconds for an endpoint to list its models: it computes nothing, and an operator waits."""

MAX_MODELS = 2000
"""Most models that are shown: several times as many as the largest endpoints offer."""

MAX_MODEL_NAME = 200
"""Most characters of a model's name."""

MAX_RETRY_AFTER = 3600.0
"""Longest wait, in seconds, that an endpoint may ask for; a longer one is shortened to this."""


class Failing(StrEnum):
    """Why a question was not answered."""

    UNREACHABLE = "unreachable"
    """No connection: refused, unknown host, untrusted certificate."""
    TIMEOUT = "timeout"
    """No complete answer within the configured time."""
    CUT_OFF = "cut off"
    """The connection ended during the answer."""
    UNAUTHORIZED = "unauthorized"
    """401 or 403: the key is wrong, or not permitted."""
    NOT_FOUND = "not found"
    """404: no such model, or no such path."""
    REDIRECTED = "redirected"
    """3xx, which is not followed: the key and the texts go only to the configured host."""
    BUSY = "busy"
    """429: too many requests, or no credit left."""
    REJECTED = "rejected"
    """Any other 4xx: the endpoint refuses this question."""
    FAILING = "failing"
    """5xx: the endpoint failed."""
    TOO_LARGE = "too large"
    """The answer exceeds the size limit, and was not read to its end."""
    UNREADABLE = "unreadable"
    """The answer is not a chat completion."""

    @property
    def blames_the_question(self) -> bool:
        """Whether repeating the question is pointless, although a smaller one may succeed."""
        return self in {Failing.REJECTED, Failing.TOO_LARGE}

    @property
    def lasts(self) -> bool:
        """Whether an early retry is pointless, because an operator has to change something."""
        return self in {Failing.UNAUTHORIZED, Failing.NOT_FOUND, Failing.REDIRECTED}


class EndpointFault(McpdError):
    """A question was not answered. The text names the endpoint's host, but no key, path or response."""

    def __init__(self, kind: Failing, text: str, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.retry_after = retry_after


class SummariesUnavailable(McpdError):
    """No question can be asked: the key is missing, or the URL is invalid. The text says how to proceed."""


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


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a model."""

    text: str
    tokens_read: int | None = None
    """The endpoint's count of the question's tokens; None if it gave none."""
    tokens_written: int | None = None
    """The endpoint's count of the answer's tokens."""


class Endpoint:
    """A model at `/chat/completions`; cancelling a question closes its connection at once."""

    def __init__(self, summaries: Summaries, key: str | None, place: str) -> None:
        """Reads the system's certificates: create it in a worker thread."""
        self._summaries = summaries
        self._place = place
        self._tls = ssl.create_default_context()
        url = httpx2.URL(summaries.base_url)
        self._url = str(url.copy_with(userinfo=b"")).rstrip("/")
        authorization = f"Bearer {key}" if key is not None else _basic(url)
        secret = authorization.rpartition(" ")[2].encode()
        self._secret = secret if len(secret) >= SHORTEST_KEY else None
        self._headers = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "user-agent": "{name}/{version}".format(**IDENTITY),
            **({"authorization": authorization} if authorization else {}),
        }

    async def models(self) -> tuple[str, ...]:
        """The names of the endpoint's models (`GET /models`), sorted; raises `EndpointFault`."""
        with trio.move_on_after(LIST_SECONDS):
            request = httpx2.Request("GET", f"{self._url}/models", headers=self._headers)
            # Some are megabytes long.
            return await trio.to_thread.run_sync(self._names, await self._sent(request, MAX_LIST))
        raise EndpointFault(
            Failing.TIMEOUT, f"{self._place} has not listed its models within {LIST_SECONDS:g} s"
        )

    async def ask(self, instructions: str, question: str) -> Answered:
        """The model's answer; raises `EndpointFault`."""
        conversation = [{"role": "system", "content": instructions}, {"role": "user", "content": question}]
        asked = {"model": self._summaries.model, "messages": conversation}
        url = f"{self._url}/chat/completions"
        with trio.move_on_after(self._summaries.timeout):
            request = httpx2.Request("POST", url, headers=self._headers, json=asked)
            return self._answered(await self._sent(request, MAX_ANSWER))
        raise EndpointFault(
            Failing.TIMEOUT,
            f"{self._place} has not answered within {self._summaries.timeout:g} s (summaries.timeout)",
        )

    async def _sent(self, request: httpx2.Request, most: int) -> bytes:
        """Send a request over a new connection, and read the whole answer; raises `EndpointFault`."""
        try:
            if request.url.scheme == "https":
                await trio.aclose_forcefully(await reach(*host_and_port(self._url, "https"), self._tls))
            async with httpx2.AsyncHTTPTransport(verify=self._tls, trust_env=False) as wire:
                response = await wire.handle_async_request(request)
                try:
                    return await self._body(response, most)
                finally:
                    await response.aclose()
        except RunError as error:
            raise EndpointFault(Failing.UNREACHABLE, str(error)) from None
        except httpx2.ConnectError as error:
            text = f"cannot connect to {self._place}: {reason(error)}"
            raise EndpointFault(Failing.UNREACHABLE, text) from None
        except httpx2.TransportError as error:
            text = f"the connection to {self._place} broke during the answer: {type(error).__name__}"
            raise EndpointFault(Failing.CUT_OFF, text) from None

    async def _body(self, response: httpx2.Response, most: int) -> bytes:
        if response.status_code != httpx2.codes.OK:
            wait = min(retry_after(response.headers, datetime.now(UTC)), MAX_RETRY_AFTER)
            raise fault_of_status(response.status_code, self._place, wait or None)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise EndpointFault(
                Failing.UNREADABLE, f"{self._place} compresses its answers although mcpd asked it not to"
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
                Failing.UNREADABLE, f"the answer of {self._place} contains mcpd's key, so mcpd drops it"
            )
        return bytes(body)

    def _names(self, body: bytes) -> tuple[str, ...]:
        if (listed := decoded(_MODELS.decode, body)) is None:
            raise EndpointFault(Failing.UNREADABLE, f"the answer of {self._place} is not a list of models")
        names = {
            each.id for each in listed.data if each.id.isprintable() and 0 < len(each.id) <= MAX_MODEL_NAME
        }
        return tuple(sorted(names)[:MAX_MODELS])

    def _answered(self, body: bytes) -> Answered:
        if (completion := decoded(_COMPLETION.decode, body)) is None:
            raise EndpointFault(Failing.UNREADABLE, f"the answer of {self._place} is not a chat completion")
        text = completion.choices[0].message.content if completion.choices else None
        if not text:
            raise EndpointFault(Failing.UNREADABLE, f"the answer of {self._place} has no text")
        read, written = (_count(completion.usage, name) for name in ("prompt_tokens", "completion_tokens"))
        return Answered(text=text, tokens_read=read, tokens_written=written)


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and value >= 0 else None


def _basic(url: httpx2.URL) -> str:
    named = f"{url.username}:{url.password}".encode()
    return f"Basic {b64encode(named).decode()}" if url.userinfo else ""


async def open_endpoint(summaries: Summaries, environ: Mapping[str, str]) -> Endpoint:
    """Open the configured endpoint, imported in a thread; raises `SummariesUnavailable`."""
    key = _key(summaries, environ)
    try:
        place = place_of(*host_and_port(summaries.base_url, "http", "https"))
    except CannotStart as error:
        raise SummariesUnavailable(f"summaries.baseUrl cannot be used: {error}") from None
    return await trio.to_thread.run_sync(Endpoint, summaries, key, place)


def _key(summaries: Summaries, environ: Mapping[str, str]) -> str | None:
    if summaries.api_key_env is None:
        return None
    key = (environ.get(summaries.api_key_env) or summaries.kept_key or "").strip()
    variable = f"the environment variable {summaries.api_key_env} (summaries.apiKeyEnv)"
    if not key:
        raise SummariesUnavailable(
            f"{variable} is not set: set it where the daemon is started and start it again, or put a line"
            f" {summaries.api_key_env}=... into the file env next to the configuration, then `mcpd reload`"
        )
    if not (key.isascii() and key.isprintable()):
        raise SummariesUnavailable(f"{variable} has characters that cannot be part of a key: set it again")
    return key


def fault_of_status(status: int, place: str, retry_after: float | None = None) -> EndpointFault:
    """The fault that an HTTP status other than 200 means."""
    kind, meaning = _MEANINGS.get(status) or _MEANINGS.get(status // 100, _NO_MEANING)
    return EndpointFault(kind, f"{place} answered HTTP {status}: {meaning}", retry_after=retry_after)


_MEANINGS = {
    401: (Failing.UNAUTHORIZED, "it does not accept the key: see summaries.apiKeyEnv"),
    403: (Failing.UNAUTHORIZED, "the key is not permitted to use this model"),
    404: (Failing.NOT_FOUND, "it has no such model, or nothing at this path: see summaries.model and baseUrl"),
    408: (Failing.FAILING, "it waited too long"),
    429: (Failing.BUSY, "too many questions, or the account is empty"),
    3: (Failing.REDIRECTED, "it redirects, which mcpd does not follow: see summaries.baseUrl"),
    4: (Failing.REJECTED, "it does not accept the question"),
    5: (Failing.FAILING, "it failed"),
}
"""The meaning of each status, or else of its first digit."""
_NO_MEANING = Failing.UNREADABLE, "mcpd cannot use this as an answer"


MAX_QUESTION = 4000
"""Most characters of a question: several tools with their descriptions, not a document."""


class SummaryQuestions:
    """Puts operators' questions to the configured model, outside the limit `summaries.perMinute`."""

    prompt = INSTRUCTIONS
    sends = SENDS

    def __init__(self, config: Callable[[], Config], environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ
        self._offered: tuple[str, tuple[str, ...]] | None = None
        self.tested: Mapping[str, object] | None = None
        """The last question of `test` with its answer; None before the first."""

    @property
    def offered(self) -> tuple[str, ...] | None:
        """The models that the endpoint last listed; None if this endpoint was never asked."""
        summaries = self._config().summaries
        if summaries is None or self._offered is None or self._offered[0] != summaries.base_url:
            return None
        return self._offered[1]

    async def models(self) -> tuple[str, ...]:
        """The names of the endpoint's models; raises `McpdError`."""
        there, configured = await self._opened()
        found = await there.models()
        self._offered = configured.base_url, found
        return found

    async def test(self, question: str) -> Mapping[str, object]:
        """Put a question to the model, or the sample question if empty; raises `McpdError`."""
        if len(question) > MAX_QUESTION:
            raise InvalidArguments(f"the question has more than {MAX_QUESTION} characters: ask a shorter one")
        asked = question or message(SAMPLE)
        there, configured = await self._opened()
        began = trio.current_time()
        answer = await there.ask(INSTRUCTIONS, asked)
        seconds = trio.current_time() - began
        self.tested = {
            "model": configured.model,
            "question": asked,
            "answer": answer.text,
            "seconds": round(seconds, 3),
            "tokensRead": answer.tokens_read,
            "tokensWritten": answer.tokens_written,
            "fault": "" if question else _fault(answer.text),
        }
        return self.tested

    async def _opened(self) -> tuple[Endpoint, Summaries]:
        configured = self._config().summaries
        if configured is None:
            raise SummariesUnavailable(
                "no model is configured: `mcpd set . summaries.baseUrl=https://HOST/v1 summaries.model=NAME`"
                " names one"
            )
        return await open_endpoint(configured, self._environ), configured


def _fault(answer: str) -> str:
    """Why an answer to the sample question is useless; empty if it is useful."""
    try:
        found = read(answer, SAMPLE)
    except UnreadableAnswer as error:
        return str(error)
    return "; ".join(found.refused)
