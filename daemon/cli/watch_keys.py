"""What the keys of `mcpd status --watch` choose: the page, the order, the filter and the server."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

from daemon.states import WORST_FIRST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Json = dict[str, Any]

MAX_FILTER = 64
"""Characters of a filter: as many as a server's name may have."""

_RANK = {str(state): rank for rank, state in enumerate(WORST_FIRST)}


class WatchPage(StrEnum):
    """What fills the screen."""

    TABLE = "table"
    SERVER = "server"
    HELP = "help"


def _by_state(name: str, server: Json) -> tuple[object, ...]:
    # That of an instance counts, too: a server may be well while one of its instances cannot start.
    states = [server["state"], *(each["state"] for each in server.get("instances") or ())]
    return min(_RANK.get(state, 0) for state in states), name


def _most(field: str) -> Callable[[str, Json], tuple[object, ...]]:
    """The order that has the servers with most of something first, and those of which it is not known last.

    Of what is measured by the minute the last minutes count, as in the table; an older daemon has only sums.
    """
    return lambda name, server: (-((server.get("recent") or server).get(field) or 0), name)


def _by_memory(name: str, server: Json) -> tuple[object, ...]:
    return -(server.get("rssBytes") or 0), name


ORDERS: dict[str, Callable[[str, Json], tuple[object, ...]]] = {
    "configuration": lambda _name, _server: (),
    "name": lambda name, _server: (name,),
    "state": _by_state,
    "calls": _most("calls"),
    "latency": _most("p95Ms"),
    "errors": _most("errors"),
    "memory": _by_memory,
}
"""What servers can be sorted by, in the order in which `s` goes through them."""


@attrs.define
class WatchChoices:
    """What was chosen so far, and where the page is scrolled to."""

    page: WatchPage = WatchPage.TABLE
    order: str = next(iter(ORDERS))
    text: str = ""
    """The filter; empty shows all servers."""
    typing: bool = False
    """Whether keys are typed into the filter."""
    selected: str = ""
    """The name of a server, which may be gone (`current`)."""
    top: int = 0
    """The first line of the page that is shown; whoever draws keeps it within the page."""
    room: int = 1
    """How many lines of the page are shown, as it was drawn last."""
    left: bool = False
    """Whether the person has had enough."""

    def shown(self, servers: Mapping[str, Json]) -> list[str]:
        """The names of the servers that the filter lets through, in order."""
        wanted = self.text.lower()
        found = [
            name
            for name, server in servers.items()
            if wanted in name.lower() or wanted in str(server["state"]).lower()
        ]
        order = ORDERS[self.order]
        return sorted(found, key=lambda name: order(name, servers[name]))

    def current(self, names: list[str]) -> str:
        """The selected server, or the first if that is not among `names`; empty without any."""
        return self.selected if self.selected in names else next(iter(names), "")

    def press(self, key: str, servers: Mapping[str, Json]) -> None:
        """Take a key.

        Args:
            key: a character, or the name of a key: `up`, `pagedown`, `enter`, `escape`, `backspace`, `c-c`.
            servers: by name, as `status` answers them.
        """
        if key == "c-c":
            self.left = True
        elif self.typing:
            self._type(key)
        elif key == "q":
            self.left = True
        elif key in {"?", "h"}:
            self._turn_to(WatchPage.TABLE if self.page is WatchPage.HELP else WatchPage.HELP)
        elif self.page is WatchPage.TABLE:
            self._on_table(key, self.shown(servers))
        elif key in {"escape", "backspace", "left"}:
            self._turn_to(WatchPage.TABLE)
        else:
            self.top = max(0, self.top + self._step(key, end=_FAR))

    def _turn_to(self, page: WatchPage) -> None:
        self.page, self.top = page, 0

    def _type(self, key: str) -> None:
        if key == "backspace":
            self.text = self.text[:-1]
        elif key in {"enter", "escape"}:
            self.typing = False
            self.text = self.text if key == "enter" else ""
        elif len(key) == 1 and key.isprintable():
            self.text = (self.text + key)[:MAX_FILTER]

    def _on_table(self, key: str, names: list[str]) -> None:
        if key == "s":
            orders = list(ORDERS)
            self.order = orders[(orders.index(self.order) + 1) % len(orders)]
        elif key == "/":
            self.typing = True
        elif key == "escape":
            # What was chosen last is undone first.
            self.left = not self.text
            self.text = ""
        elif names:
            at = names.index(self.current(names))
            self.selected = names[min(max(at + self._step(key, end=len(names)), 0), len(names) - 1)]
            if key in {"enter", "right"}:
                self._turn_to(WatchPage.SERVER)

    def _step(self, key: str, *, end: int) -> int:
        """How many lines or servers a key goes down."""
        steps = {"down": 1, "j": 1, "up": -1, "k": -1, "home": -end, "g": -end, "end": end, "G": end}
        pages = {"pagedown": 1, " ": 1, "pageup": -1}
        return steps.get(key, pages.get(key, 0) * max(1, self.room - 1))


_FAR = 1_000_000
"""Lines beyond the end of any page."""
