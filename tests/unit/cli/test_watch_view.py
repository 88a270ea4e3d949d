"""The screen of the watched status: as wide and as high as the terminal, whatever is to be shown."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import attrs
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.cells import cell_len

from daemon.cli.control import DaemonUnreachable, RemoteFault
from daemon.cli.watch import (
    MAX_FILTER,
    ORDERS,
    SLOW_SECONDS,
    Picture,
    Size,
    StatusPoll,
    WatchChoices,
    WatchPage,
    frame,
    watch_screen,
)
from tests.pairwise import pairwise as combined
from tests.unit.cases import cases
from tests.unit.cli.daemons import down, server, status_of
from tests.waiting import PATIENCE

NOW = 1005.0
SMALL = Size(80, 24)
MANY = {f"server-{number:02}": server(tools=number) for number in range(50)}


def seen(servers: dict[str, Any], at: float = NOW, **more: Any) -> Picture:
    return Picture(status=status_of(servers), at=at, **more)


def shown(
    picture: Picture, choices: WatchChoices | None = None, size: Size = SMALL, now: float = NOW
) -> list[str]:
    """The lines of a frame, of which each has been looked at for its width."""
    drawn = frame(picture, choices or WatchChoices(), now=now, size=size)
    lines = ["".join(each.text for each in line) for line in drawn]
    assert [cell_len(line) for line in lines] == [size.width] * size.height
    return lines


@pytest.mark.parametrize(
    ("width", "height", "page"), combined([20, 40, 80, 200], [1, 2, 3, 8, 24, 60], WatchPage)
)
def test_a_frame_is_exactly_as_large_as_the_screen(width: int, height: int, page: WatchPage) -> None:
    wide = {"日本": down(reason="道" * 300), **MANY}
    for servers in ({}, {"git": server()}, wide):
        shown(seen(servers, problem="gone\nSee its log."), WatchChoices(page=page), Size(width, height))
    shown(Picture(), WatchChoices(page=page), Size(width, height))


def test_the_selected_server_is_marked_and_stays_in_sight() -> None:
    choices = WatchChoices()
    for key, name in (
        ("end", "server-49"),
        ("up", "server-48"),
        ("home", "server-00"),
        ("pagedown", "server-20"),
    ):
        choices.press(key, MANY)
        marked = [line for line in shown(seen(MANY), choices) if line.startswith(">")]
        assert [line.split()[1] for line in marked] == [name]


def test_all_rows_are_reached_and_the_heading_stays() -> None:
    choices, found = WatchChoices(), set()
    some = dict(list(MANY.items())[:20])
    for _ in range(8):
        lines = shown(seen(some), choices, Size(80, 8))
        assert lines[1].startswith("  server ")
        found |= {line[2:11] for line in lines[2:-1]}
        choices.press("pagedown", some)
    assert found == set(some)


def test_a_selected_server_that_is_gone_is_no_fault() -> None:
    choices = WatchChoices(selected="gone", top=400)
    assert any(line.startswith("> git") for line in shown(seen({"git": server()}), choices))
    choices.page = WatchPage.SERVER
    assert any("not configured any more" in line for line in shown(seen({}), choices))


def test_what_is_wrong_is_below_a_table_that_leaves_room_and_with_all_of_one_server() -> None:
    assert any("exited with status 1" in line for line in shown(seen({"git": down()})))
    assert not any("exited with status 1" in line for line in shown(seen({**MANY, "git": down()})))
    choices = pressed("enter", servers={"git": down()})
    lines = shown(seen({"git": down(reason="it has\x1b[2J ended")}), choices)
    assert any(r"it has\x1b[2J ended" in line for line in lines)
    assert lines[-1].startswith("q leave  Esc back")


def test_head_and_foot_tell_of_the_daemon_the_keys_and_how_many_the_filter_leaves() -> None:
    first, *_, last = shown(seen({"git": server()}))
    assert first.startswith("1 of 1 server available, mcpd 0.1.0, up 1h 2m")
    assert first[-8:].count(":") == 2
    assert last.startswith("q leave  ? keys  s sort: configuration  / filter: none")
    choices = WatchChoices(text="-1")
    assert shown(seen(MANY), choices)[-1].endswith("10 of 50")
    assert any("No server matches" in line for line in shown(seen(MANY), WatchChoices(text="zzz")))
    assert shown(seen(MANY), WatchChoices(text="zz", typing=True))[-1].startswith("filter: zz_")


def test_a_daemon_that_is_away_keeps_its_picture_and_a_silent_one_is_told_apart_from_a_slow_one() -> None:
    away = seen({"git": server()}, at=NOW - 20, problem="nobody listens", away=NOW - 15)
    lines = shown(away)
    assert "(15s): nobody listens" in lines[1]
    assert lines[2].rstrip() == time.strftime("Below: as of %H:%M:%S.", time.localtime(NOW - 20))
    assert any(line.startswith("> git") for line in lines)
    assert "nobody listens" in shown(Picture(problem="nobody listens", away=NOW))[1]
    assert not any("nobody" in line for line in shown(seen({"git": server()})))
    asked = seen({"git": server()}, asked=NOW)
    assert not any("waiting" in line for line in shown(asked, now=NOW + SLOW_SECONDS))
    assert any("waiting for an answer for 9s" in line for line in shown(asked, now=NOW + 9))


def test_a_long_page_is_scrolled_to_its_end_and_not_beyond() -> None:
    noisy = {"git": down(stderr=[f"line {number}" for number in range(100)])}
    choices = WatchChoices(page=WatchPage.SERVER)
    choices.press("end", noisy)
    tops = []
    for _ in range(3):
        lines = shown(seen(noisy), choices)
        assert any("line 99" in line for line in lines)
        tops.append(choices.top)
        choices.press("down", noisy)
    assert all(before == after for before, after in pairwise(tops))


# --- keys of the watched status: what each chooses -----------------------------------------------------------


SERVERS: Any = {
    "git": server(calls=5, p95Ms=2.0, rssBytes=10),
    "time": down(),
    "files": server(calls=50, p95Ms=90.0, rssBytes=None),
    "mail": server(state="failed", calls=0, p95Ms=None, rssBytes=900),
}


def pressed(*keys: str, servers: Any = SERVERS) -> WatchChoices:
    choices = WatchChoices(room=3)
    for key in keys:
        choices.press(key, servers)
    return choices


@cases("order", "first")
def test_s_goes_through_the_orders(order: str, first: list[str]) -> None:
    choices = pressed(*"s" * list(ORDERS).index(order))
    assert choices.order == order
    if order == "calls":
        assert choices.shown(SERVERS)[:2] == first[:2]
    else:
        assert choices.shown(SERVERS) == first


def test_a_server_is_as_bad_as_its_worst_instance() -> None:
    servers = {"a": server(state="backoff"), "b": server(instances=[server(state="failed")])}
    assert WatchChoices(order="state").shown(servers) == ["b", "a"]


def test_a_filter_is_kept_until_escape_and_what_is_typed_into_it_is_no_command_and_has_a_bound() -> None:
    choices = pressed("/", *"FAI", "enter")
    assert (choices.typing, choices.shown(SERVERS)) == (False, ["mail"])
    choices.press("escape", SERVERS)
    assert (choices.text, choices.left) == ("", False), "the filter goes first"
    choices.press("escape", SERVERS)
    assert choices.left
    choices = pressed("/", *"X", "backspace", *"qs?", "up", "\t")
    assert (choices.text, choices.left, choices.page) == ("qs?", False, WatchPage.TABLE)
    choices.press("escape", SERVERS)
    assert (choices.text, choices.typing, choices.left) == ("", False, False)
    assert pressed("/", "c-c").left
    assert len(pressed("/", *"a" * (MAX_FILTER + 9)).text) == MAX_FILTER


@cases("keys", "selected")
def test_a_server_is_selected(keys: list[str], selected: str) -> None:
    assert pressed(*keys).selected == selected


def test_the_selection_goes_with_its_server_and_to_the_first_when_that_is_gone() -> None:
    choices = pressed("down", "s")
    assert choices.current(choices.shown(SERVERS)) == "time"
    assert choices.current(["git"]) == "git"
    assert choices.current([]) == ""


# --- asking beside the screen --------------------------------------------------------------------------------


NEVER = PATIENCE * 100
"""Seconds between two questions where no second one is to come by itself."""


class Asked:
    """A daemon that answers with what it is given, one after the other; a clock that goes on with each look."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self._answers, self._now = list(answers), 0.0
        self._told = threading.Semaphore(0)
        self.poll = StatusPoll(self._look, NEVER, wall=self._wall)

    def _look(self, server: str | None) -> tuple[Any, Any]:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, None if server is None else {"name": server}

    def _wall(self) -> float:
        self._now += 1
        return self._now

    def next(self, server: str | None) -> Picture:
        """The picture after the next answer, which is about a server, too."""
        if server is None:
            self.poll.start(self._told.release)
        else:
            self.poll.see(server)
        assert self._told.acquire(timeout=PATIENCE)
        return self.poll.picture


@pytest.mark.parametrize("error", [DaemonUnreachable("gone"), RemoteFault(-1, "gone")])
def test_another_server_is_asked_about_at_once_and_a_daemon_that_is_away_leaves_its_last_picture(
    error: Exception,
) -> None:
    first, second, last = ({"answer": number} for number in range(3))
    asked = Asked(first, second, error, error, last)
    seen: Any = asked.next(None)
    assert seen == Picture(status=cast("Any", first), at=2.0)
    seen = asked.next("git")
    assert (seen.status, seen.one, seen.at) == (second, {"name": "git"}, 4.0)
    # Since when it has been away does not move on.
    gone = attrs.evolve(seen, problem="gone", away=5.0)
    assert [asked.next("x"), asked.next("y")] == [gone, gone]
    seen = asked.next("z")
    assert (seen.status, seen.one, seen.at, seen.problem, seen.away) == (last, {"name": "z"}, 8.0, "", 0.0)
    asked.poll.stop()


class FailsAtOnce(StatusPoll):
    """A poll whose first answer comes before anything else."""

    def start(self, notify: Callable[[], object]) -> None:
        self._run(notify)


def test_a_fault_of_the_first_answer_ends_the_screen_however_early_it_comes() -> None:
    def look(_server: str | None) -> Any:
        raise ZeroDivisionError

    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("q")  # which ends a screen that has missed the fault
        with pytest.raises(ZeroDivisionError):
            watch_screen(FailsAtOnce(look, NEVER))
