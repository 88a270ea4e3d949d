"""The registry: the only writer of the catalog; it turns facts from a mailbox into snapshots."""

from __future__ import annotations

from collections.abc import Callable

import trio
from loguru import logger

from daemon.catalog.permissions import pointless
from daemon.catalog.snapshot import Catalog, begin, fold_all, with_settled_names
from daemon.config.config_model import Config
from daemon.facts import Approved, Configured, DefinitionsListed, Fact, NamesRecalled, ServerRecord, Switched
from daemon.history.event import Event
from daemon.history.event_words import sentence
from daemon.kit.waiting import Mailbox, Watch, keep_latest
from daemon.operators.news import changed, newly_held, news

MAX_HELD = 10_000
"""Most held definitions remembered as reported, the latest: each is reported once between two approvals."""


class Registry:
    """Holds the catalog."""

    def __init__(
        self,
        config: Config,
        *,
        wall: Callable[[], float],
        reserved: frozenset[str] = frozenset(),
        note: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        """Start from the configuration. No tool may have a `reserved` name; `note` records events."""
        self.catalog = Watch(begin(config, wall(), reserved))
        self.config = Watch(config)
        """The catalog's configuration, for those who need not look at each change of a server."""
        self._mailbox: Mailbox[Fact] = Mailbox(_subject)
        self._note = note
        # Reported in the next turn; at most the facts of one turn.
        self._news: Watch[tuple[tuple[Catalog, Catalog], ...]] = Watch(())
        self._warned: set[str] = set()
        self._held: dict[str, None] = {}
        self._summed_up = False

    def tell(self, fact: Fact) -> None:
        """Leave a fact in the mailbox; never blocks."""
        self._mailbox.tell(fact)

    def introduced(self, server: str) -> bytes:
        """A server's description of itself (`catalog.extensions`); empty if unknown."""
        entry = self.catalog.value.servers.get(server)
        return b"" if entry is None else entry.said.introduction

    def settle_names(self) -> None:
        """Make tools' names final before a client is shown them: from now on each means the same tool."""
        self.catalog.set(with_settled_names(self.catalog.value))

    async def settle(self) -> None:
        """Return when every fact so far is in the catalog and logged; the watchdog's round trip uses it."""
        await self._mailbox.ask_settled()
        await self._news.wait_until(lambda news: not news)

    async def run(self) -> None:
        """Fold facts into the catalog until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_news)
            try:
                await self._mailbox.serve(self._fold)
            finally:
                self._tell_next()

    def _fold(self, facts: list[Fact]) -> None:
        before = self.catalog.value
        catalog = fold_all(before, facts)
        self.catalog.set(catalog)
        self.config.set(catalog.config)
        if catalog.servers is not before.servers:
            self._news.set((*self._news.value, (before, catalog)))
        self._warn_unresolved(catalog)
        self._warn_pointless(before, catalog)
        self._sum_up(catalog)

    async def _tell_news(self) -> None:
        """Log changes in a turn of their own: for 5,000 tools, logging takes as long as folding."""
        while True:
            await self._news.wait_until(bool)
            # What came in while they were folded goes first.
            await trio.lowlevel.checkpoint()
            self._tell_next()

    def _tell_next(self) -> None:
        untold = self._news.value
        self._news.set(())
        for before, catalog in untold:
            if catalog.approvals is not before.approvals or catalog.config is not before.config:
                self._held.clear()
            for name, entry in catalog.servers.items():
                was = before.servers.get(name)
                if was is None or was is entry:
                    continue
                if text := news(was, entry):
                    logger.bind(server=name, event=True).info("{}", text)
                    self._note(changed(was, entry))
                if (found := newly_held(was, entry, self._held)) is not None:
                    held, paths = found
                    logger.bind(server=name, event=True).warning("{}", sentence(held))
                    self._note(held)
                    for path in paths:
                        keep_latest(self._held, path, None, MAX_HELD)

    def _warn_unresolved(self, catalog: Catalog) -> None:
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
                    "this entry disables no tool" if off else "calls to this tool get UnknownTool",
                )

    def _warn_pointless(self, before: Catalog, catalog: Catalog) -> None:
        """Warn of permission rules that no tool matches, once per pattern."""
        if before.config is catalog.config and all(
            entry.tools is (was.tools if (was := before.servers.get(name)) is not None else None)
            for name, entry in catalog.servers.items()
        ):
            return
        for profile in catalog.config.profiles.values():
            for pattern, why in pointless(profile.permissions, catalog.servers):
                warned = f"permissions of {profile.name}: {pattern}"
                if warned not in self._warned:
                    self._warned.add(warned)
                    text = "profile {}: no tool matches {} of its permissions: {}"
                    logger.warning(text, profile.name, pattern, why)

    def _sum_up(self, catalog: Catalog) -> None:
        """Log the summary of the start once, when every server has listed or failed."""
        if self._summed_up or any(entry.status.is_unsettled for entry in catalog.servers.values()):
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
    """A fact's key; a newer fact with the same key replaces it."""
    if isinstance(fact, Switched | Configured | NamesRecalled):
        return type(fact).__name__, ""
    if isinstance(fact, Approved):
        return type(fact).__name__, str(fact.number)
    # A fact with an epoch alone must not replace one with what is remembered for it.
    bare = isinstance(fact, ServerRecord) and not fact.lists
    kind = f"{fact.kind} {bool(fact.problem)}" if isinstance(fact, DefinitionsListed) else ""
    return f"{type(fact).__name__} {'of an epoch' if bare else kind}", fact.server
