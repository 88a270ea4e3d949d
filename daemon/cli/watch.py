"""`mcpd status --watch`: shows the status as a live screen, or prints it repeatedly without a terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import attrs
from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output import ColorDepth
from rich.color import ColorSystem
from rich.console import Console, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from daemon.cli.control import DaemonUnreachable, RemoteFault
from daemon.cli.status_servers import MARK, remarks, table
from daemon.cli.status_view import lately_in_words, parts_of_one
from daemon.cli.terminal import Screen, console_of, paragraph, safe
from daemon.kit.wording import counted, span
from daemon.safety.escape import visible
from daemon.states import WORST_FIRST

if TYPE_CHECKING:
    from daemon.operators.reports import OneStatusReport, ServerReport, StatusReport


Line = list[Segment]

MAX_FILTER = 64
"""Characters of a filter: as many as a server's name may have."""

_RANK = {str(state): rank for rank, state in enumerate(WORST_FIRST)}


class WatchPage(StrEnum):
    """The page on the screen."""

    TABLE = "table"
    SERVER = "server"
    HELP = "help"


def _by_state(name: str, server: ServerReport) -> tuple[object, ...]:
    # Instances count too: one may fail to start while its server is well.
    states = [server["state"], *(each["state"] for each in server["instances"])]
    return min(_RANK.get(state, 0) for state in states), name


ORDERS: dict[str, Callable[[str, ServerReport], tuple[object, ...]]] = {
    "configuration": lambda _name, _server: (),
    "name": lambda name, _server: (name,),
    "state": _by_state,
    # Largest recent values first, as in the table.
    "calls": lambda name, server: (-server["recent"]["calls"], name),
    "latency": lambda name, server: (-(server["recent"]["p95Ms"] or 0), name),
    "errors": lambda name, server: (-server["recent"]["errors"], name),
    "memory": lambda name, server: (-(server["rssBytes"] or 0), name),
}
"""Ways to sort servers, in the order in which `s` cycles through them."""


@attrs.define
class WatchChoices:
    """The person's choices, and the scroll position."""

    page: WatchPage = WatchPage.TABLE
    order: str = next(iter(ORDERS))
    text: str = ""
    typing: bool = False
    selected: str = ""
    """The name of the selected server, which may be gone (`current`)."""
    top: int = 0
    """The first line shown of the page; `frame` keeps it in bounds."""
    room: int = 1
    """Lines of the page that are shown; set by `frame`."""
    left: bool = False

    def shown(self, servers: Mapping[str, ServerReport]) -> list[str]:
        """The names of servers that pass the filter, sorted."""
        wanted = self.text.lower()
        found = [
            name
            for name, server in servers.items()
            if wanted in name.lower() or wanted in str(server["state"]).lower()
        ]
        order = ORDERS[self.order]
        return sorted(found, key=lambda name: order(name, servers[name]))

    def current(self, names: list[str]) -> str:
        """The selected server, or the first of `names` if the selected one is gone; empty without any."""
        return self.selected if self.selected in names else next(iter(names), "")

    def press(self, key: str, servers: Mapping[str, ServerReport]) -> None:
        """Handle a key: a character, or `up`, `pagedown`, `enter`, `escape`, `backspace`, `c-c` and so on."""
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
            # Esc undoes the latest choice.
            self.left = not self.text
            self.text = ""
        elif names:
            at = names.index(self.current(names))
            self.selected = names[min(max(at + self._step(key, end=len(names)), 0), len(names) - 1)]
            if key in {"enter", "right"}:
                self._turn_to(WatchPage.SERVER)

    def _step(self, key: str, *, end: int) -> int:
        steps = {"down": 1, "j": 1, "up": -1, "k": -1, "home": -end, "g": -end, "end": end, "G": end}
        pages = {"pagedown": 1, " ": 1, "pageup": -1}
        return steps.get(key, pages.get(key, 0) * max(1, self.room - 1))


_FAR = 1_000_000


@attrs.frozen
class Picture:
    """The daemon's latest known state."""

    status: StatusReport | None = None
    one: OneStatusReport | None = None
    at: float = 0.0
    """When the last answer came, in epoch seconds."""
    problem: str = ""
    """The reason why the last request failed; empty after an answer."""
    away: float = 0.0
    """When the first of the failed requests was made, in epoch seconds; 0 after an answer."""
    asked: float = 0.0
    """When the open request was made, in epoch seconds; 0 without one."""


class StatusPoll:
    """Polls the daemon in a thread, and keeps the latest picture."""

    def __init__(
        self,
        look: Callable[[str | None], tuple[StatusReport, OneStatusReport | None]],
        every: float,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`look` gets mcpd's status, and that of the server named; it raises as `control.ask`."""
        self._look, self._every, self._wall = look, every, wall
        self._wanted: str | None = None
        self._wake = threading.Event()
        self._stopped = False
        self.picture = Picture()
        """The thread replaces the whole picture, so readers never see half a change."""
        self.fault: Exception | None = None

    def start(self, notify: Callable[[], object]) -> None:
        """Start the thread, which calls `notify` after each answer."""
        # A daemon thread, so that a hanging question does not keep the program running.
        threading.Thread(target=self._run, args=(notify,), daemon=True, name="poll").start()

    def see(self, server: str | None) -> None:
        """Poll this server, too; at once, unless it is polled already."""
        if server != self._wanted:
            self._wanted = server
            self._wake.set()

    def stop(self) -> None:
        """Stop polling."""
        self._stopped = True
        self._wake.set()

    def _run(self, notify: Callable[[], object]) -> None:
        try:
            while not self._stopped:
                self._ask()
                notify()
                self._wake.wait(self._every)
                self._wake.clear()
        except Exception as error:  # noqa: BLE001 - the screen raises it
            self.fault = error
            notify()

    def _ask(self) -> None:
        began, before = self._wall(), self.picture
        self.picture = attrs.evolve(before, asked=began)
        try:
            status, one = self._look(self._wanted)
        except (DaemonUnreachable, RemoteFault) as error:
            self.picture = attrs.evolve(before, problem=str(error), away=before.away or began, asked=0.0)
        else:
            self.picture = Picture(status=status, one=one, at=self._wall())


SLOW_SECONDS = 3.0
"""Seconds after which the screen says that the answer is late; the daemon answers in milliseconds."""

LOW = 12
"""Lines of a screen below which a problem is shown in one line; otherwise in up to `MAX_PROBLEM`."""

MAX_PROBLEM = 4
"""Lines for the reason why the daemon does not answer."""

HELP = (
    ("up, down, j, k", "select a server, or scroll"),
    ("PgUp, PgDn, Home, End", "by pages, to the first and the last"),
    ("Enter", "all of the selected server"),
    ("Esc, Backspace", "back to the table"),
    ("s", f"sort by the next of: {', '.join(ORDERS)}"),
    ("/", "show only servers with this in their name or state: type, then Enter; Esc shows all again"),
    ("?", "these keys"),
    ("q, Ctrl-C; Esc on the table", "leave"),
    ("Ctrl-Z", "stop for now; `fg` goes on"),
)


class Size(NamedTuple):
    """The size of a terminal."""

    width: int
    height: int


def frame(picture: Picture, choices: WatchChoices, *, now: float, size: Size) -> list[Line]:
    """The lines of the screen, padded to its size; sets the scroll position in `choices`."""
    head = [*_title(picture, now, size.width), *_problem(picture, now, size)]
    foot = _footer(picture, choices, size.width)
    room = max(0, size.height - len(head) - len(foot))
    if choices.page is WatchPage.HELP:
        body = _scrolled(_help(size.width), choices, room)
    elif picture.status is None:
        body = []
    elif choices.page is WatchPage.SERVER:
        body = _scrolled(_one(picture, choices, now, size.width), choices, room)
    else:
        body = _table(picture.status, choices, now, Size(size.width, room))
    blank = [Segment(" " * size.width)]
    lines = [*head, *body[:room], *([blank] * (room - len(body))), *foot]
    # The line of keys is the last to drop on a low screen.
    return lines[-size.height :] if len(lines) > size.height else lines


def _title(picture: Picture, now: float, width: int) -> list[Line]:
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    left = "mcpd"
    if picture.status is not None:
        daemon = picture.status["daemon"]
        left += f" {visible(daemon['version'])}, up {span(daemon['uptimeSeconds'])}"
        left = f"{daemon['available']} of {counted(daemon['servers'], 'server')} available, {left}"
    return [_line(left, width, right=clock)]


def _problem(picture: Picture, now: float, size: Size) -> list[Line]:
    if picture.problem:
        since = time.strftime("%H:%M:%S", time.localtime(picture.away))
        text = f"no answer since {since} ({span(now - picture.away, parts=1)}): {picture.problem}"
    elif picture.asked and now - picture.asked > SLOW_SECONDS:
        text = f"waiting for an answer for {span(now - picture.asked, parts=1)}"
    else:
        return []
    if picture.status is not None:
        shown = time.strftime("%H:%M:%S", time.localtime(picture.at))
        text = f"{text} [below: as of {shown}]" if size.height < LOW else f"{text}\nBelow: as of {shown}."
    lines = [safe(each, "yellow") for each in text.split("\n")]
    return _lines(lines, size.width)[: 1 if size.height < LOW else MAX_PROBLEM]


def _footer(picture: Picture, choices: WatchChoices, width: int) -> list[Line]:
    if choices.typing:
        return [_line(f"filter: {choices.text}_   Enter keeps it, Esc shows all", width)]
    if choices.page is not WatchPage.TABLE:
        return [_line("q leave  Esc back  up/down scroll", width)]
    parts = ["q leave", "? keys", f"s sort: {choices.order}", f"/ filter: {visible(choices.text) or 'none'}"]
    right = ""
    if picture.status is not None and choices.text:
        servers = picture.status["servers"]
        right = f"{len(choices.shown(servers))} of {len(servers)}"
    return [_line("  ".join([*parts, "Enter more"]), width, right=right)]


def _table(status: StatusReport, choices: WatchChoices, now: float, size: Size) -> list[Line]:
    names = choices.shown(status["servers"])
    if not names:
        why = "No server matches the filter." if status["servers"] else "No servers are configured."
        return _lines([Text(why)], size.width)
    servers = {name: status["servers"][name] for name in names}
    screen = Screen(width=size.width, colour=True)
    heading, *rows = _lines([table(servers, now, screen, selected=choices.current(names))], size.width)
    marked = [at for at, row in enumerate(rows) if row[0].text.startswith(MARK)]
    head = [heading] if size.height > 1 else []
    shown = _scrolled(rows, choices, size.height - len(head), marked)
    below: list[RenderableType] = [
        Text(line, style="cyan") for line in lately_in_words(status["lately"], size.width, lines=1)
    ]
    below += remarks(servers, status["daemon"]["startsAtATime"])
    left = choices.room - len(rows)
    # Cut at the screen's end; a key shows all of a server.
    more = _lines(below, size.width)[:left] if left > 1 and below else []
    return [*head, *shown, *more]


def _one(picture: Picture, choices: WatchChoices, now: float, width: int) -> list[Line]:
    servers = picture.status["servers"] if picture.status is not None else {}
    name = choices.current(choices.shown(servers))
    if not name:
        return _lines([Text("It is not configured any more.")], width)
    screen = Screen(width=width, colour=True)
    one = picture.one if picture.one is not None and picture.one["name"] == name else None
    if one is None:
        one = {
            "name": name,
            "server": servers[name],
            "calls": [],
            "moreCalls": 0,
            "lastErrors": [],
            "events": [],
        }
    return _lines(parts_of_one(one, now, screen), width)


def _help(width: int) -> list[Line]:
    parts: list[RenderableType] = []
    for keys, meaning in HELP:
        parts += [safe(keys, "bold"), paragraph(meaning, indent=4)]
    return _lines(parts, width)


def _scrolled(lines: list[Line], choices: WatchChoices, room: int, marked: Sequence[int] = ()) -> list[Line]:
    """The lines that fit. The scroll position moves as little as possible, so that `marked` ones are shown."""
    choices.room = max(1, room)
    if marked:
        choices.top = max(min(choices.top, marked[0]), min(marked[0], marked[-1] - choices.room + 1))
    choices.top = max(0, min(choices.top, len(lines) - choices.room))
    return lines[choices.top : choices.top + choices.room]


def _line(left: str, width: int, *, right: str = "") -> Line:
    """A highlighted line with another text at its right end, which is kept if both do not fit."""
    line = Table.grid(expand=True, padding=(0, 0, 0, 1) if right else 0, pad_edge=False)
    line.add_column(ratio=1, no_wrap=True, overflow="crop")
    line.add_column(justify="right", no_wrap=True)
    line.add_row(Text(left), Text(right), style="reverse")
    return _lines([line], width)[0]


def _lines(parts: Iterable[RenderableType], width: int) -> list[Line]:
    console = _console(width)
    return console.render_lines(Group(*parts), pad=True)


@cache
def _console(width: int) -> Console:
    return console_of(Screen(width=width, colour=True))


# --- the terminal ----------------------------------------------------------------------------------------

CLOCK_SECONDS = 1.0
"""Seconds between two frames: the screen shows a clock and ages."""

ESCAPE_SECONDS = 0.05
"""Seconds after which an Esc is a key of its own: terminals send sequences in one piece."""

_ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end the screen as `q` does, so that the terminal is restored; SIGINT arrives as a key."""

_NAMES = {"<sigint>": "c-c", "c-m": "enter", "c-j": "enter", "c-h": "backspace"}
"""Our names for keys that prompt_toolkit names by their control character."""


def watch(show: Callable[[], int], every: float) -> int:
    """Print the status every `every` seconds until Ctrl-C; returns the last exit status."""
    code = 0
    try:
        while True:
            code = show()
            sys.stdout.flush()
            time.sleep(every)
    except KeyboardInterrupt:
        return code


def has_screen(environ: Mapping[str, str], *streams: TextIO) -> bool:
    """Whether the streams belong to a terminal whose cursor can be moved."""
    return environ.get("TERM", "dumb") not in {"", "dumb", "unknown"} and all(each.isatty() for each in streams)


def watch_screen(poll: StatusPoll, server: str | None = None) -> Picture:
    """Show the answers of an unstarted `poll` until the person leaves; returns the last picture."""
    choices = WatchChoices() if server is None else WatchChoices(page=WatchPage.SERVER, selected=server)
    poll.see(server)
    screen = _application(poll, choices)
    before = {number: signal.signal(number, lambda *_: _leave(screen)) for number in _ENDING}
    try:
        # Not before the screen has a loop: the first answer's fault would find none, and be lost.
        screen.run(pre_run=lambda: poll.start(lambda: _answered(screen, poll)))
    except (EOFError, KeyboardInterrupt):
        # The terminal is gone, or Ctrl-C came as a signal.
        pass
    finally:
        poll.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    return poll.picture


def _leave(screen: Application[Any], fault: Exception | None = None) -> None:
    # prompt_toolkit refuses a second exit, and impatient users press `q` twice.
    if not screen.is_done:
        screen.exit(exception=fault) if fault is not None else screen.exit()


def _answered(screen: Application[None], poll: StatusPoll) -> None:
    fault, loop = poll.fault, screen.loop
    if fault is not None and loop is not None:
        loop.call_soon_threadsafe(lambda: _leave(screen, fault))
    screen.invalidate()


def _application(poll: StatusPoll, choices: WatchChoices) -> Application[None]:
    keys = KeyBindings()

    # Eager, for every key: prompt_toolkit binds keys of its own for line editing.
    @keys.add(Keys.Any, eager=True)
    def pressed(event: KeyPressEvent) -> None:
        press = event.key_sequence[0]
        if press.key == Keys.ControlZ:
            event.app.suspend_to_background()
            return
        servers = poll.picture.status["servers"] if poll.picture.status is not None else {}
        name = str(getattr(press.key, "value", press.key))
        choices.press(_NAMES.get(name, name), servers)
        chosen = choices.current(choices.shown(servers)) if choices.page is WatchPage.SERVER else None
        poll.see(chosen)
        if choices.left:
            _leave(event.app)

    def drawn() -> ANSI:
        rows, columns = screen.output.get_size()
        try:
            lines = frame(poll.picture, choices, now=time.time(), size=Size(columns, rows))
        except Exception as fault:  # noqa: BLE001 - `run` raises it again; prompt_toolkit would print it and go on
            _leave(screen, fault)
            return ANSI("")
        return ANSI("\n".join("".join(map(_ansi, line)) for line in lines))

    screen: Application[None] = Application(
        Layout(Window(FormattedTextControl(drawn), wrap_lines=False, always_hide_cursor=True)),
        key_bindings=keys,
        full_screen=True,
        refresh_interval=CLOCK_SECONDS,
        color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else ColorDepth.DEPTH_4_BIT,
    )
    screen.ttimeoutlen = screen.timeoutlen = ESCAPE_SECONDS
    return screen


def _ansi(part: Segment) -> str:
    return part.style.render(part.text, color_system=ColorSystem.STANDARD) if part.style else part.text
