"""The endpoint that is asked: what it is, what can go wrong with it, and how it is opened.

Nothing of the client library is imported here. `open_endpoint` imports the one module that needs it by name, in
a worker thread, and only when the configuration asks for it.
"""

from __future__ import annotations

import importlib
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import trio

from daemon.errors import CannotStart, McpdError
from daemon.upstreams.transports.network import host_and_port, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.config.model import Summaries

CLIENT = "daemon.summaries.openai_endpoint"
"""The only module that imports the extra's packages; it has `connect(summaries, key, place)`."""

INSTALL = "pip install 'mcpd-supervisor[summaries]'"
"""What a refusal tells the operator to do."""

MAX_RETRY_AFTER = 3600.0
"""Seconds; an endpoint that asks for more is asked again after an hour."""


class Kind(StrEnum):
    """Why a question has no answer."""

    UNREACHABLE = "unreachable"
    """No connection: refused, no such host, not trusted."""
    TIMEOUT = "timeout"
    """Nothing, or not everything, within the configured time."""
    CUT_OFF = "cut off"
    """The connection ended in the middle."""
    UNAUTHORIZED = "unauthorized"
    """401 or 403: the key is wrong, or may not do this."""
    NOT_FOUND = "not found"
    """404: no such model, or no such path."""
    REDIRECTED = "redirected"
    """3xx: the key and the texts go nowhere but where they were meant to go."""
    BUSY = "busy"
    """429: too many questions, or no money left."""
    REJECTED = "rejected"
    """Any other 4xx: this question is not liked."""
    FAILING = "failing"
    """5xx."""
    TOO_LARGE = "too large"
    """An answer over the limit; it was not read to its end."""
    UNREADABLE = "unreadable"
    """Something that is no chat completion."""

    @property
    def blames_the_question(self) -> bool:
        """Whether a smaller question may fare better, and the same one not at all."""
        return self in {Kind.REJECTED, Kind.TOO_LARGE}

    @property
    def lasts(self) -> bool:
        """Whether asking again soon cannot help: somebody has to do something."""
        return self in {Kind.UNAUTHORIZED, Kind.NOT_FOUND, Kind.REDIRECTED}


class EndpointFault(McpdError):
    """A question has no answer. The text names the endpoint's host; never a key, a path or what came back."""

    def __init__(self, kind: Kind, text: str, *, retry_after: float | None = None) -> None:
        """Say what went wrong.

        Args:
            kind: what to do about it depends on this.
            text: in words, for operators.
            retry_after: seconds that the endpoint asks to be left alone for.
        """
        super().__init__(text)
        self.kind = kind
        self.retry_after = retry_after


class SummariesUnavailable(McpdError):
    """No question can be asked: packages or the key are missing, or the url is none. Says what to do."""


class Endpoint(Protocol):
    """A model that answers questions."""

    async def ask(self, instructions: str, question: str) -> str:
        """What the model says.

        Args:
            instructions: what it is to do.
            question: with what.

        Raises:
            EndpointFault: it does not say anything that can be used.
        """

    async def aclose(self) -> None:
        """Close all connections."""


async def open_endpoint(
    summaries: Summaries,
    environ: Mapping[str, str],
    *,
    load: Callable[[str], Any] = importlib.import_module,
) -> Endpoint:
    """The configured endpoint. Nothing is sent yet; importing the library takes 0.7 s, in a worker thread.

    Args:
        summaries: the configuration.
        environ: where the key stands.
        load: imports a module by its name.

    Raises:
        SummariesUnavailable: the extra is not installed, the variable is not set, or the url is none.
    """
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
    """The key, if one is configured."""
    if summaries.api_key_env is None:
        return None
    key = environ.get(summaries.api_key_env, "").strip()
    variable = f"the environment variable {summaries.api_key_env} (summaries.apiKeyEnv)"
    if not key:
        raise SummariesUnavailable(
            f"{variable} is not set: set it where the daemon is started, and start it again"
        )
    if not (key.isascii() and key.isprintable()):
        raise SummariesUnavailable(f"{variable} holds characters that no key has: set it anew")
    return key


def fault_of_status(status: int, place: str, retry_after: float | None = None) -> EndpointFault:
    """What an HTTP status other than 200 means."""
    kind, meaning = _MEANINGS.get(status) or _meaning_of_class(status // 100)
    return EndpointFault(kind, f"{place} answered HTTP {status}: {meaning}", retry_after=retry_after)


_MEANINGS = {
    401: (Kind.UNAUTHORIZED, "it wants another key: see summaries.apiKeyEnv"),
    403: (Kind.UNAUTHORIZED, "the key may not ask this model"),
    404: (Kind.NOT_FOUND, "it has no such model, or nothing at this path: see summaries.model and baseUrl"),
    408: (Kind.FAILING, "it waited too long"),
    429: (Kind.BUSY, "too many questions, or the account is empty"),
}


def _meaning_of_class(hundreds: int) -> tuple[Kind, str]:
    return {
        3: (Kind.REDIRECTED, "it points elsewhere, which is not followed: see summaries.baseUrl"),
        4: (Kind.REJECTED, "it does not take the question"),
        5: (Kind.FAILING, "it has a problem of its own"),
    }.get(hundreds, (Kind.UNREADABLE, "that is no answer"))


def read_retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait, as the header Retry-After says, at most `MAX_RETRY_AFTER`; None if it says nothing.

    Args:
        value: seconds or an HTTP date.
        now: seconds since the epoch.
    """
    if value is None:
        return None
    try:
        seconds = (
            float(value) if value.strip()[:1].isdigit() else parsedate_to_datetime(value).timestamp() - now
        )
    except (ValueError, OverflowError, TypeError):
        return None
    return min(max(0.0, seconds), MAX_RETRY_AFTER)
