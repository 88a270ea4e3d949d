"""Runs a summarizer for the configured model, if there is one, while loading on demand is on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol
from urllib.parse import urlsplit

import attrs
import trio
from loguru import logger

from daemon.config.config_model import Config, Summaries
from daemon.kit.waiting import Watch, serve_wanted
from daemon.surfaces.table import shows_summaries

SWITCHED_OFF = "mcpd asks no model: loading on demand is switched off, by `lazy` or in every profile"


class Asking(Protocol):
    """Asks one model (`actors.summarizer.Summarizer`)."""

    @property
    def state(self) -> Any:
        """The progress so far, an attrs value."""

    async def run(self) -> None:
        """Ask until cancelled; return if the endpoint cannot be used."""


class Summarizing:
    """Runs the summarizer of the configured model, and replaces or ends it when the configuration changes."""

    def __init__(self, config: Watch[Config], make: Callable[[Summaries], Asking]) -> None:
        """`make` imports the summarizer's modules, so a worker thread calls it."""
        self._config = config
        self._make = make
        self._asking: Asking | None = None

    @property
    def state(self) -> Mapping[str, object] | None:
        """The progress, the model and the endpoint's host; None without a configured model."""
        config = self._config.value
        summaries = config.summaries
        if summaries is None:
            return None
        told: dict[str, object] = {"model": summaries.model, "endpoint": _host(summaries)}
        if not shows_summaries(config):
            return {**told, "off": SWITCHED_OFF}
        return told if self._asking is None else {**told, **attrs.asdict(self._asking.state)}

    async def run(self) -> NoReturn:
        """Follow the configuration until cancelled."""
        await serve_wanted(self._config, _wanted, self._ask)

    async def _ask(self, summaries: Summaries) -> None:
        self._asking = None
        try:
            self._asking = await trio.to_thread.run_sync(self._make, summaries)
            await self._asking.run()
        except Exception:  # noqa: BLE001 - the boundary: tools have descriptions of their own
            logger.exception("internal error in mcpd: no model is asked for summaries")


def _wanted(config: Config) -> Summaries | None:
    return config.summaries if config.summaries is not None and shows_summaries(config) else None


def _host(summaries: Summaries) -> str:
    return urlsplit(summaries.base_url).netloc.rpartition("@")[2]
