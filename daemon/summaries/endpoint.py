"""The interface of a model endpoint, its faults, and the opening of the configured one."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Protocol

import msgspec
import trio

from daemon.config.config_model import Config, Summaries
from daemon.errors import CannotStart, InvalidArguments, McpdError
from daemon.summaries.prompt import INSTRUCTIONS, SAMPLE, SENDS, UnreadableAnswer, message, read
from daemon.upstreams.transports.network import host_and_port, place_of

CLIENT = "daemon.summaries.openai_endpoint"
"""The only module that imports the extra's packages; it has `connect(summaries, key, place)`."""

INSTALL = "pip install 'mcpd-supervisor[summaries]'"
"""The command that installs the missing packages, quoted in the error."""

MAX_RETRY_AFTER = 3600.0
"""The longest wait in seconds that an endpoint may ask for; a longer one is cut to this."""


class Failing(StrEnum):
    """The reason why a question was not answered."""

    UNREACHABLE = "unreachable"
    """No connection: refused, no such host, not trusted."""
    TIMEOUT = "timeout"
    """No complete answer within the configured time."""
    CUT_OFF = "cut off"
    """The connection ended in the middle."""
    UNAUTHORIZED = "unauthorized"
    """401 or 403: the key is wrong, or lacks the right."""
    NOT_FOUND = "not found"
    """404: no such model, or no such path."""
    REDIRECTED = "redirected"
    """3xx, which is not followed: the key and the texts go only to the configured host."""
    BUSY = "busy"
    """429: too many requests, or no credit left."""
    REJECTED = "rejected"
    """Any other 4xx: the endpoint refuses this question."""
    FAILING = "failing"
    """5xx."""
    TOO_LARGE = "too large"
    """The answer is over the size limit, and was not read to its end."""
    UNREADABLE = "unreadable"
    """The answer is not a chat completion."""

    @property
    def blames_the_question(self) -> bool:
        """Whether repeating the same question is pointless, while a smaller one may succeed."""
        return self in {Failing.REJECTED, Failing.TOO_LARGE}

    @property
    def lasts(self) -> bool:
        """Whether asking again soon cannot help, because an operator has to change something."""
        return self in {Failing.UNAUTHORIZED, Failing.NOT_FOUND, Failing.REDIRECTED}


class EndpointFault(McpdError):
    """A question was not answered. The text names the endpoint's host, never a key, path or response."""

    def __init__(self, kind: Failing, text: str, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.retry_after = retry_after


class SummariesUnavailable(McpdError):
    """No question can be asked: packages or the key are missing, or the URL is invalid. Says what to do."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a model."""

    text: str
    tokens_read: int | None = None
    """The endpoint's count of the question's tokens; None without one."""
    tokens_written: int | None = None
    """Tokens of the answer."""


class Endpoint(Protocol):
    """A model that answers questions."""

    async def models(self) -> tuple[str, ...]:
        """The names of the endpoint's models, in alphabetical order; raises `EndpointFault`."""

    async def ask(self, instructions: str, question: str) -> Answered:
        """The model's answer to a user message, after the system message; raises `EndpointFault`."""

    async def aclose(self) -> None:
        """Close all connections."""


async def open_endpoint(
    summaries: Summaries, environ: Mapping[str, str], *, load: Callable[[str], Any] = importlib.import_module
) -> Endpoint:
    """Open the configured endpoint, importing it in a thread (0.7 s); raises `SummariesUnavailable`."""
    key = _key(summaries, environ)
    try:
        place = place_of(*host_and_port(summaries.base_url, "http", "https"))
    except CannotStart as error:
        raise SummariesUnavailable(f"summaries.baseUrl cannot be used: {error}") from None
    try:
        module = await trio.to_thread.run_sync(load, CLIENT)
    except ImportError as error:
        raise SummariesUnavailable(f"summaries need more packages ({error}): {INSTALL}") from error
    endpoint: Endpoint = await trio.to_thread.run_sync(module.connect, summaries, key, place)
    return endpoint


def _key(summaries: Summaries, environ: Mapping[str, str]) -> str | None:
    if summaries.api_key_env is None:
        return None
    key = (environ.get(summaries.api_key_env) or summaries.kept_key or "").strip()
    variable = f"the environment variable {summaries.api_key_env} (summaries.apiKeyEnv)"
    if not key:
        raise SummariesUnavailable(
            f"{variable} is not set: set it where the daemon is started and start it again, or put a line"
            f" {summaries.api_key_env}=... into the file env beside the configuration, then `mcpd reload`"
        )
    if not (key.isascii() and key.isprintable()):
        raise SummariesUnavailable(f"{variable} holds characters that no key has: set it again")
    return key


def fault_of_status(status: int, place: str, retry_after: float | None = None) -> EndpointFault:
    """The fault that an HTTP status other than 200 stands for."""
    kind, meaning = _MEANINGS.get(status) or _MEANINGS.get(status // 100, _NO_MEANING)
    return EndpointFault(kind, f"{place} answered HTTP {status}: {meaning}", retry_after=retry_after)


_MEANINGS = {
    401: (Failing.UNAUTHORIZED, "it wants another key: see summaries.apiKeyEnv"),
    403: (Failing.UNAUTHORIZED, "the key may not ask this model"),
    404: (Failing.NOT_FOUND, "it has no such model, or nothing at this path: see summaries.model and baseUrl"),
    408: (Failing.FAILING, "it waited too long"),
    429: (Failing.BUSY, "too many questions, or the account is empty"),
    3: (Failing.REDIRECTED, "it points elsewhere, which is not followed: see summaries.baseUrl"),
    4: (Failing.REJECTED, "it does not take the question"),
    5: (Failing.FAILING, "it has a problem of its own"),
}
"""The meaning of each status, else of its hundreds."""
_NO_MEANING = Failing.UNREADABLE, "that is no answer"


def read_retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait by a header Retry-After (RFC 9110 §10.2.3), up to `MAX_RETRY_AFTER`; None if invalid."""
    if value is None:
        return None
    try:
        seconds = (
            float(value) if value.strip()[:1].isdigit() else parsedate_to_datetime(value).timestamp() - now
        )
    except (ValueError, OverflowError, TypeError):
        return None
    return min(max(0.0, seconds), MAX_RETRY_AFTER)


MAX_QUESTION = 4000
"""Characters of a question: several tools with their descriptions, not a document."""

CLOSE_SECONDS = 1.0
"""Seconds for closing an idle connection."""


class SummaryQuestions:
    """Puts operators' questions to the configured model; they do not count in `summaries.perMinute`."""

    prompt = INSTRUCTIONS
    sends = SENDS

    def __init__(self, config: Callable[[], Config], environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ
        self._offered: tuple[str, tuple[str, ...]] | None = None
        self.tested: Mapping[str, object] | None = None
        """The last question (`test`) with its answer; None before the first."""

    @property
    def offered(self) -> tuple[str, ...] | None:
        """The models that the endpoint listed last; None if this endpoint was not asked."""
        summaries = self._config().summaries
        if summaries is None or self._offered is None or self._offered[0] != summaries.base_url:
            return None
        return self._offered[1]

    async def models(self) -> tuple[str, ...]:
        """The names of the endpoint's models; raises `McpdError`."""
        async with self._opened() as (there, configured):
            found = await there.models()
        self._offered = configured.base_url, found
        return found

    async def test(self, question: str) -> Mapping[str, object]:
        """Put a question to the model, empty for the sample's; raises `McpdError`."""
        if len(question) > MAX_QUESTION:
            raise InvalidArguments(f"the question has more than {MAX_QUESTION} characters: ask a shorter one")
        asked = question or message(SAMPLE)
        async with self._opened() as (there, configured):
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

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Endpoint, Summaries]]:
        configured = self._config().summaries
        if configured is None:
            raise SummariesUnavailable(
                'no model is configured: write "summaries": {"baseUrl": "https://HOST/v1", "model": "NAME"}'
                " into the configuration, then `mcpd reload`"
            )
        there = await open_endpoint(configured, self._environ)
        try:
            yield there, configured
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await there.aclose()


def _fault(answer: str) -> str:
    """The reason why an answer about the sample is useless; empty for a useful one."""
    try:
        found = read(answer, SAMPLE)
    except UnreadableAnswer as error:
        return str(error)
    return "; ".join(found.refused)
