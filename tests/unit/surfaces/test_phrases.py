"""Names of tools in words."""

from __future__ import annotations

import pytest

from daemon.surfaces.summing import ROOM, in_words


def bare(*names: str) -> list[tuple[str, str]]:
    """Tools without a description."""
    return [(name, "") for name in names]


@pytest.mark.parametrize(
    ("names", "server", "said"),
    [
        (["browser_navigate", "browser_take_screenshot"], "playwright", "navigate, take screenshot"),
        (["git_log", "git_status"], "py-git", "log, status"),
        (["getUser", "HTTPRequest2"], "x", "get user, http request 2"),
        (["API-post-search", "API-get-self"], "notion", "post search, get self"),
        (["read_file", "read"], "files", "read file, read"),
        (["slack_post"], "slack", "post"),
        (["git"], "git", "git"),
        (["lesen", "größe_ändern"], "x", "lesen, größe ändern"),
        (["a", "A", "a_"], "x", "a"),
        (["--", "??"], "x", ""),
        ([], "x", ""),
    ],
)
def test_a_name_becomes_a_phrase_without_what_all_begin_with(names: list[str], server: str, said: str) -> None:
    assert in_words(bare(*names), server) == said


def test_where_not_all_have_room_no_word_is_said_twice() -> None:
    names = [f"{verb}_{thing}" for thing in ("issue", "pull_request", "branch") for verb in ("list", "create")]
    names += [f"delete_{'very' * 5}_long_name_{number}" for number in range(20)]
    line = in_words(bare(*names), "github")
    assert line.startswith("create issue, list pull request, branch, delete")
    assert line.count("create") == 1


@pytest.mark.parametrize("names", [["x" * 128] * 3, [f"n{'x' * n}" for n in range(200)], ["x" * 5000]])
def test_a_line_is_bounded_whatever_the_names_are(names: list[str]) -> None:
    assert 0 < len(in_words(bare(*names), "s")) <= ROOM + 1


def test_where_there_is_little_room_what_most_tools_are_about_is_said_first() -> None:
    tools = [
        ("page_close", "Close it."),
        ("page_wait", "Wait for it."),
        ("page_screenshot", "Take a screenshot."),
        ("page_describe", "Better than a screenshot."),
        ("page_scroll", "Scroll it."),
    ]
    assert in_words(tools, "x", 22) == "screenshot, describe…"
    assert in_words(tools, "x") == "close, wait, screenshot, describe, scroll"


def test_the_order_is_the_servers_own_and_the_same_each_time() -> None:
    tools = [(f"do_{word}_now", f"Does {word}.") for word in ("this", "that", "something", "nothing")]
    assert in_words(tools, "x", 30) == in_words(list(tools), "x", 30) == "this now, something, nothing…"


@pytest.mark.parametrize("room", [0, 1, 5, 30, 1000])
def test_no_more_is_said_than_there_is_room_for(room: int) -> None:
    tools = [(f"take_{number}_screenshots", "Takes screenshots. " * 1000) for number in range(500)]
    assert len(in_words(tools, "x", room)) <= room + 1
