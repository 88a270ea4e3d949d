"""`mcpd status --watch`: shows the status as a live screen, or prints it repeatedly without a terminal."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output import ColorDepth, Output
from rich.color import ColorSystem

from daemon.cli.watch_view import Picture, Size, StatusPoll, WatchChoices, WatchPage, frame

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from rich.segment import Segment


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


def watch_screen(
    poll: StatusPoll, server: str | None = None, *, terminal: tuple[Input, Output] | None = None
) -> Picture:
    """Show the answers of an unstarted `poll` until the person leaves; returns the last picture."""
    choices = WatchChoices() if server is None else WatchChoices(page=WatchPage.SERVER, selected=server)
    poll.see(server)
    screen = _application(poll, choices, terminal)
    before = {number: signal.signal(number, lambda *_: _leave(screen)) for number in _ENDING}
    poll.start(lambda: _answered(screen, poll))
    try:
        screen.run()
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


def _application(
    poll: StatusPoll, choices: WatchChoices, terminal: tuple[Input, Output] | None
) -> Application[None]:
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

    read, write = terminal or (None, None)
    screen: Application[None] = Application(
        Layout(Window(FormattedTextControl(drawn), wrap_lines=False, always_hide_cursor=True)),
        key_bindings=keys,
        full_screen=True,
        refresh_interval=CLOCK_SECONDS,
        color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else ColorDepth.DEPTH_4_BIT,
        input=read,
        output=write,
    )
    screen.ttimeoutlen = screen.timeoutlen = ESCAPE_SECONDS
    return screen


def _ansi(part: Segment) -> str:
    return part.style.render(part.text, color_system=ColorSystem.STANDARD) if part.style else part.text
