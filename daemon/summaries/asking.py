"""The model that writes summaries, asked by an operator: for a list of models, and to be tried."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from daemon.errors import InvalidArguments
from daemon.summaries.endpoint import SummariesUnavailable, open_endpoint
from daemon.summaries.prompt import INSTRUCTIONS, SAMPLE, SENDS, UnreadableAnswer, message, read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from daemon.config.model import Config, Summaries
    from daemon.summaries.endpoint import Endpoint

MAX_QUESTION = 4000
"""Characters of a question: several tools with their descriptions, not a document."""

CLOSE_SECONDS = 1.0
"""Seconds for closing the connection, over which nothing is under way."""


class SummaryQuestions:
    """Puts operators' questions to the configured model; they do not count in `summaries.perMinute`."""

    prompt = INSTRUCTIONS
    sends = SENDS

    def __init__(self, config: Callable[[], Config], environ: Mapping[str, str]) -> None:
        """Ask nothing yet.

        Args:
            config: returns the configuration in force.
            environ: the environment that may hold the key.
        """
        self._config = config
        self._environ = environ
        self._offered: tuple[str, tuple[str, ...]] | None = None
        self.tested: Mapping[str, object] | None = None
        """The last question to it with its answer (`test`); None before the first."""

    @property
    def offered(self) -> tuple[str, ...] | None:
        """What the endpoint listed when it was asked last; None if this one was not asked."""
        summaries = self._config().summaries
        if summaries is None or self._offered is None or self._offered[0] != summaries.base_url:
            return None
        return self._offered[1]

    async def models(self) -> tuple[str, ...]:
        """The names of the models that the endpoint offers.

        Raises:
            McpdError: it cannot be asked, or does not say; the text names it and the cause.
        """
        async with self._opened() as (there, configured):
            found = await there.models()
        self._offered = configured.base_url, found
        return found

    async def test(self, question: str) -> Mapping[str, object]:
        """Put a question to the model behind the fixed instructions; empty: one about a tool that nobody has.

        Returns:
            `model`; `question`; `answer`; `seconds`; `tokensRead` and `tokensWritten`, None where the endpoint
            does not count; `fault`: why the answer to the empty question could not be used, else empty.

        Raises:
            InvalidArguments: the question is too long.
            McpdError: there is no answer; the text names the endpoint and the cause.
        """
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
    """Why an answer to the question about the sample cannot be used; empty if it can."""
    try:
        found = read(answer, SAMPLE)
    except UnreadableAnswer as error:
        return str(error)
    return "; ".join(found.refused)
