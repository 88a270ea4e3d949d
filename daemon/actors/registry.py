"""The registry: single writer of the catalog.

Facts come in through a mailbox, frozen snapshots go out through a watch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loguru import logger

from daemon.catalog.snapshot import UNSETTLED, begin, fold_all, with_settled_names
from daemon.facts import Configured, NamesRecalled, Recalled, Switched
from daemon.kit.mailbox import Mailbox, Watch
from daemon.operators.news import news

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Config
    from daemon.facts import Fact


class Registry:
    """Holds the catalog."""

    def __init__(
        self, config: Config, *, wall: Callable[[], float], reserved: frozenset[str] = frozenset()
    ) -> None:
        """Begin with what the configuration says.

        Args:
            config: the configuration.
            wall: seconds since the epoch.
            reserved: names of meta-tools.
        """
        self.catalog = Watch(begin(config, wall(), reserved))
        self._mailbox: Mailbox[Fact] = Mailbox(_subject)
        self._warned: set[str] = set()
        self._summed_up = False

    def tell(self, fact: Fact) -> None:
        """Leave a fact; never blocks."""
        self._mailbox.tell(fact)

    def settle_names(self) -> None:
        """Somebody is shown the names of tools: from now on each means what it means."""
        self.catalog.set(with_settled_names(self.catalog.value))

    async def settle(self) -> None:
        """Return once everything told so far is in the catalog: the watchdog's round trip."""
        await self._mailbox.ask_settled()

    async def run(self) -> None:
        """Fold facts until cancelled."""
        await self._mailbox.serve(self._fold)

    def _fold(self, facts: list[Fact]) -> None:
        before = self.catalog.value
        catalog = fold_all(before, facts)
        self.catalog.set(catalog)
        self._tell_news(before, catalog)
        self._warn_unresolved(catalog)
        self._sum_up(catalog)

    def _tell_news(self, before: Catalog, catalog: Catalog) -> None:
        """A line about each server whose tools are others than before: the log says when that was."""
        for name, entry in catalog.servers.items():
            was = before.servers.get(name)
            if was is not None and was is not entry and (text := news(was, entry)):
                logger.bind(server=name).info("{}", text)

    def _warn_unresolved(self, catalog: Catalog) -> None:
        """Once per name: a tool in the configuration that its server does not have (seed 001, §4.2)."""
        for category in catalog.categories.values():
            for name in category.unresolved:
                if name in self._warned:
                    continue
                self._warned.add(name)
                off = any(f"{m.server}/{m.tool}" == name and not m.enabled for m in category.members.values())
                logger.bind(category=category.name).warning(
                    "category {} names {}, which its server does not list: {}",
                    category.name,
                    name,
                    "nothing is switched off by it" if off else "calls to it get UnknownTool",
                )

    def _sum_up(self, catalog: Catalog) -> None:
        """The start-up line of seed 001, §8: once, when every server has listed or failed."""
        if self._summed_up or any(entry.status.state in UNSETTLED for entry in catalog.servers.values()):
            return
        self._summed_up = True
        categories = catalog.categories.values()
        members = [each for category in categories if not category.whole for each in category.members.values()]
        whole = sum(len(category.members) for category in categories if category.whole)
        logger.info(
            "catalog: categories={} tools={} disabled={} unresolved={}",
            len(catalog.categories),
            whole + sum(member.listed and member.enabled for member in members),
            sum(not member.enabled for member in members),
            len({name for category in catalog.categories.values() for name in category.unresolved}),
        )


def _subject(fact: Fact) -> tuple[str, str]:
    """What a fact is about: a newer one of the same kind about the same server replaces it."""
    if isinstance(fact, Switched | Configured | NamesRecalled):
        return type(fact).__name__, ""
    # An epoch alone does not stand for what was remembered with it.
    bare = isinstance(fact, Recalled) and fact.tools is None
    return f"{type(fact).__name__}{' of an epoch' if bare else ''}", fact.server
