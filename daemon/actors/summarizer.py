"""The summarizer: asks a model in the background for a sentence about each server and tool without one."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import trio
from loguru import logger

from daemon.catalog.snapshot import Catalog
from daemon.config.config_model import Summaries
from daemon.facts import Fact
from daemon.kit.waiting import RetryPolicy, Watch
from daemon.summaries.endpoint import Endpoint, EndpointFault, Failing, SummariesUnavailable, open_endpoint
from daemon.summaries.ledger import Ledger
from daemon.summaries.prompt import INSTRUCTIONS, Question, UnreadableAnswer, message, read

SETTLE = 2.0
"""Seconds between a change and a question: servers that start together share a question, and the store's
summaries arrive first."""

BACKOFF_BASE = 5.0
"""Seconds after the first failure; doubled with each further one."""

BACKOFF_CAP = 600.0
"""Seconds of the longest backoff: no summary is urgent."""

LASTING = 600.0
"""Seconds until an endpoint is asked again after a fault that an operator must correct, such as a wrong key."""

MINUTE = 60.0
"""Seconds in which `summaries.perMinute` counts requests."""


@attrs.define(kw_only=True)
class SummarizerState:
    """A summarizer's progress, for operators."""

    asked: int = 0
    answered: int = 0
    """Questions that got a readable answer."""
    sentences: int = 0
    refused: int = 0
    """Sentences that mcpd rejected: other models should not see them."""
    given_up: int = 0
    """Servers and tools that will get no sentence."""
    waiting: int = 0
    last_error: str = ""


class Summarizer:
    """Asks for sentences about the servers and tools of a catalog."""

    def __init__(
        self,
        catalog: Watch[Catalog],
        summaries: Summaries,
        *,
        tell: Callable[[Fact], None],
        wall: Callable[[], float],
        connect: Callable[[], Awaitable[Endpoint]] | None = None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """`connect` opens the endpoint once; by default, the configured one."""
        self._catalog = catalog
        self._summaries = summaries
        self._connect = connect or partial(open_endpoint, summaries, os.environ)
        self._tell = tell
        self._wall = wall
        self._retries = RetryPolicy(BACKOFF_BASE, BACKOFF_CAP, rng)
        self._ledger = Ledger()
        self._tally = SummarizerState()
        self._batch = summaries.batch
        self._failures = 0
        self._sent: deque[float] = deque(maxlen=summaries.per_minute)

    @property
    def state(self) -> SummarizerState:
        """The progress so far; computing it takes a millisecond for a few thousand tools."""
        waiting = self._ledger.waiting(self._catalog.value)
        return attrs.evolve(self._tally, given_up=self._ledger.given_up, waiting=waiting)

    async def run(self) -> None:
        """Follow the catalog until cancelled, or the endpoint is unusable. Internal errors cost sentences."""
        try:
            endpoint = await self._connect()
        except SummariesUnavailable as error:
            self._tally.last_error = str(error)
            logger.warning("no model summarises tools, so their descriptions are used: {}", error)
            return
        except Exception as error:  # noqa: BLE001 - the boundary: tools have their own descriptions
            self._note_fault(error)
            return
        while True:
            await self._follow(endpoint)

    async def _follow(self, endpoint: Endpoint) -> None:
        wait = SETTLE
        try:
            catalog = self._catalog.value
            for fact in self._ledger.news(catalog):
                self._tell(fact)
            question = self._ledger.next_question(catalog, self._batch)
            if question is None:
                await self._catalog.wait_changed(catalog)
            else:
                await self._keep_pace()
                wait = await self._put(endpoint, question)
        except Exception as error:  # noqa: BLE001 - the boundary, as above
            self._note_fault(error)
            wait = self._backoff()
        await trio.sleep(wait)

    async def _put(self, endpoint: Endpoint, question: Question) -> float:
        """Ask one question; returns the seconds until the next one."""
        self._sent.append(trio.current_time())
        self._tally.asked += 1
        try:
            said = await endpoint.ask(INSTRUCTIONS, message(question))
            answer = read(said.text, question)
        except EndpointFault as fault:
            return self._failed(question, fault)
        except UnreadableAnswer as error:
            # The endpoint works, the model does not: the pace stays, and the next question is smaller.
            self._ledger.failed(question)
            self._tally.last_error = f"the model's answer about {question.server} cannot be used: {error}"
            logger.bind(server=question.server).info("a model's answer cannot be used: {}", error)
            return 0.0
        self._failures = 0
        self._batch = min(self._summaries.batch, self._batch + 1)
        self._ledger.learn(question, answer, self._wall())
        for fact in self._ledger.news(self._catalog.value):
            self._tell(fact)
        if answer.refused:
            many, first = len(answer.refused), answer.refused[0]
            logger.bind(server=question.server).info(
                "mcpd rejected sentences of a model: {}, such as {}", many, first
            )
        self._tally.answered += 1
        self._tally.sentences += len(answer.tools) + (answer.server is not None)
        self._tally.refused += len(answer.refused)
        self._tally.last_error = ""
        return 0.0

    def _failed(self, question: Question, fault: EndpointFault) -> float:
        """Record that a question got no answer; returns the seconds until the next one."""
        if fault.kind.blames_the_question:
            self._ledger.failed(question)
        if fault.kind is Failing.TIMEOUT:
            # A slow model may manage fewer tools; one more is tried with each answer.
            self._batch = max(1, self._batch // 2)
        wait = self._backoff()
        if fault.kind.lasts:
            wait = max(wait, LASTING)
        if fault.retry_after is not None:
            wait = max(fault.retry_after, BACKOFF_BASE)
        level = "WARNING" if self._failures == 1 else "INFO"
        logger.log(level, "no summaries for now: {}; mcpd asks again in {:.0f} s", fault, wait)
        self._tally.last_error = str(fault)
        return wait

    def _backoff(self) -> float:
        delay = self._retries.delay(self._failures)
        self._failures += 1
        return delay

    async def _keep_pace(self) -> None:
        if len(self._sent) == self._sent.maxlen:
            await trio.sleep_until(self._sent[0] + MINUTE)

    def _note_fault(self, error: Exception) -> None:
        self._tally.last_error = f"internal error in mcpd: {type(error).__name__}"
        logger.exception("internal error in mcpd while summarising tools: descriptions stand in")
