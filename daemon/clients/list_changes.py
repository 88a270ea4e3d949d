"""What a client was given of its lists beside tools, and how it is told that one of them has changed.

These are prompts, resources and templates of resources. Nobody waits until the client has asked for its new
list, as for tools: no model is promised a prompt. They depend on the profile of the client alone, so that all
sessions of a connection have the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loguru import logger

from daemon.catalog.kinds import BESIDE_TOOLS, LISTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.clients.subscriptions import Subscriptions
    from daemon.model import Kind


class ListChanges:
    """The lists beside tools that one client was given."""

    def __init__(self, subscriptions: Subscriptions, look: Callable[[Kind], tuple[bytes, ...]]) -> None:
        """Begin with a client that was given nothing.

        Args:
            subscriptions: where the client is told.
            look: returns a list as it is whenever it is called.
        """
        self._subscriptions = subscriptions
        self._look = look
        self._given: dict[Kind, tuple[bytes, ...]] = {}
        """What the client was given, until that is announced to have changed."""
        self._followed: set[Kind] = set()
        """The lists whose every change is announced: they are not asked for over this connection."""

    def follow(self, honoured: Mapping[str, object]) -> None:
        """Announce each change of what a subscription asks for, until it is asked for over this connection.

        An HTTP client subscribes over one connection and asks for its lists over others.

        Args:
            honoured: the members of its filter that it was promised.
        """
        for kind in BESIDE_TOOLS:
            if honoured.get(LISTS[kind].wish):
                self._given.setdefault(kind, self._look(kind))
                self._followed.add(kind)

    def unfollow(self) -> None:
        """Follow no list any more that no subscription asks for."""
        self._followed = {each for each in self._followed if any(self._subscriptions.asking(LISTS[each].wish))}

    def given(self, kind: Kind, items: tuple[bytes, ...], *, first: bool) -> None:
        """Note that the client is given a page of a list.

        Args:
            kind: which list.
            items: the whole list.
            first: whether the page is the first one.
        """
        self._followed.discard(kind)
        # If the list has changed between its pages, the first ones may be outdated already.
        if first or kind not in self._given:
            self._given[kind] = items

    def announce_if_changed(self) -> None:
        """Notify the client if what it was given is not what it would be given now."""
        changed = [kind for kind in self._given if self._has_changed(kind)]
        for kind in changed:
            if kind in self._followed:
                self._given[kind] = self._look(kind)
            else:
                del self._given[kind]
        # Resources and their templates share a notification.
        for told in {LISTS[kind].changed: LISTS[kind] for kind in changed}.values():
            self._subscriptions.announce(told)

    def _has_changed(self, kind: Kind) -> bool:
        try:
            now = self._look(kind)
        except Exception:  # noqa: BLE001 - a bug of ours costs an announcement, not the session
            logger.exception("a fault of mcpd's own while listing {}", LISTS[kind].member)
            return False
        return now is not self._given[kind] and now != self._given[kind]
