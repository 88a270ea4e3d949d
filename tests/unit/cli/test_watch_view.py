"""The screen of the watched status: as wide and as high as the terminal, whatever is to be shown."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len

from daemon.cli.watch_view import HELP, SLOW_SECONDS, Picture, Size, WatchChoices, WatchPage, frame
from tests.unit.cli.daemons import down, server, status_of

if TYPE_CHECKING:
    from rich.segment import Segment

NOW = 1005.0
SMALL = Size(80, 24)
MANY = {f"server-{number:02}": server(tools=number) for number in range(50)}


def seen(servers: dict[str, Any], at: float = NOW, **more: Any) -> Picture:
    return Picture(status=status_of(servers), at=at, **more)


def text(line: list[Segment]) -> str:
    return "".join(each.text for each in line)


def shown(
    picture: Picture, choices: WatchChoices | None = None, size: Size = SMALL, now: float = NOW
) -> list[str]:
    """The lines of a frame, of which each has been looked at for its width."""
    lines = [text(line) for line in frame(picture, choices or WatchChoices(), now=now, size=size)]
    assert [cell_len(line) for line in lines] == [size.width] * size.height
    return lines


@pytest.mark.parametrize("page", WatchPage)
@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 2, 3, 8, 24, 60])
def test_a_frame_is_exactly_as_large_as_the_screen(width: int, height: int, page: WatchPage) -> None:
    wide = {"日本": down(reason="道" * 300), **MANY}
    for servers in ({}, {"git": server()}, wide):
        shown(seen(servers, problem="gone\nSee its log."), WatchChoices(page=page), Size(width, height))
    shown(Picture(), WatchChoices(page=page), Size(width, height))


def test_the_clock_is_shown_and_the_keys_are() -> None:
    first, *_, last = shown(seen({"git": server()}))
    assert first.startswith("1 of 1 server available, mcpd 0.1.0, up 1h 2m")
    assert first[-8:].count(":") == 2
    assert last.startswith("q leave  ? keys  s sort: configuration  / filter: none")


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
    for _ in MANY:
        lines = shown(seen(MANY), choices, Size(80, 8))
        assert lines[1].startswith("  server ")
        found |= {line[2:11] for line in lines[2:-1]}
        choices.press("down", MANY)
    assert found == set(MANY)


def test_a_selected_server_that_is_gone_is_no_fault() -> None:
    choices = WatchChoices(selected="gone", top=400)
    assert any(line.startswith("> git") for line in shown(seen({"git": server()}), choices))
    choices.page = WatchPage.SERVER
    assert any("not configured any more" in line for line in shown(seen({}), choices))


def test_below_a_table_that_leaves_room_is_what_is_wrong() -> None:
    assert any("exited with status 1" in line for line in shown(seen({"git": down()})))
    assert not any("exited with status 1" in line for line in shown(seen({**MANY, "git": down()})))


def test_one_server_is_shown_whole() -> None:
    choices = WatchChoices()
    choices.press("enter", {"git": down()})
    lines = shown(seen({"git": down(reason="it has\x1b[2J ended")}), choices)
    assert any(r"it has\x1b[2J ended" in line for line in lines)
    assert lines[-1].startswith("q leave  Esc back")


def test_a_filter_shows_how_many_are_left() -> None:
    choices = WatchChoices(text="-1")
    assert shown(seen(MANY), choices)[-1].endswith("10 of 50")
    assert any("No server fits" in line for line in shown(seen(MANY), WatchChoices(text="zzz")))
    assert shown(seen(MANY), WatchChoices(text="zz", typing=True))[-1].startswith("filter: zz_")


def test_a_narrow_screen_has_fewer_columns_and_whole_states() -> None:
    servers = {"filesystem": server(), "git": down()}
    heading, first, *_ = shown(seen(servers), size=Size(40, 8))[1:]
    assert heading.split()[:2] == ["server", "state"]
    assert first.split()[:3] == [">", "filesystem", "ready"]
    assert "pid" in shown(seen(servers), size=Size(100, 8))[1]


def test_instances_belong_to_their_server() -> None:
    instances = [{**server(), "name": f"fs@{number}", "workspace": None} for number in range(3)]
    servers = {"fs": server(instances=instances), "git": server()}
    choices = WatchChoices(selected="git")
    rows = shown(seen(servers), choices)[2:7]
    assert [row[:1] for row in rows] == [" ", " ", " ", " ", ">"]


def test_a_daemon_that_is_away_keeps_its_picture_and_says_since_when() -> None:
    away = seen({"git": server()}, at=NOW - 20, problem="nobody listens", away=NOW - 15)
    lines = shown(away)
    assert "(15s): nobody listens" in lines[1]
    assert lines[2].startswith("Below: as of ")
    assert any(line.startswith("> git") for line in lines)
    assert "nobody listens" in shown(Picture(problem="nobody listens", away=NOW))[1]
    assert not any("nobody" in line for line in shown(seen({"git": server()})))


def test_on_a_low_screen_a_long_problem_leaves_room_for_servers() -> None:
    away = seen({"git": server()}, problem="nobody listens " * 40, away=NOW)
    assert any(line.startswith("> git") for line in shown(away, size=Size(40, 6)))


def test_a_silent_daemon_is_told_apart_from_a_slow_one() -> None:
    asked = seen({"git": server()}, asked=NOW)
    assert not any("waiting" in line for line in shown(asked, now=NOW + SLOW_SECONDS))
    assert any("waiting for an answer for 9s" in line for line in shown(asked, now=NOW + 9))


def test_every_key_is_told() -> None:
    lines = "\n".join(shown(seen({}), WatchChoices(page=WatchPage.HELP), Size(80, 60)))
    assert all(keys in lines for keys, _ in HELP)


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


def test_the_night_has_one_line_below_the_table_if_there_is_room() -> None:
    of_notes = {"outages": 1, "awaySeconds": 10_800.0, "changed": [], "came": [], "went": []}
    lately = {"seconds": 43_200.0, "servers": dict.fromkeys(("notes", "weather", "git", "time"), of_notes)}
    picture = Picture(status=status_of({"notes": server()}) | {"lately": lately}, at=NOW)
    assert sum("In the last 12h: notes was away 3h;" in line for line in shown(picture)) == 1
    assert not any("In the last" in line for line in shown(picture, size=Size(80, 4)))
