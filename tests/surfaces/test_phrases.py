"""Names of tools in words: short enough for a line, and with every word that somebody may look for."""

from __future__ import annotations

import pytest

from daemon.surfaces.phrases import ROOM, in_words


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
    assert in_words(names, server) == said


def test_where_not_all_have_room_no_word_is_said_twice() -> None:
    names = [f"{verb}_{thing}" for thing in ("issue", "pull_request", "branch") for verb in ("list", "create")]
    names += [f"delete_{'very' * 5}_long_name_{number}" for number in range(20)]
    line = in_words(names, "github")
    assert line.startswith("list issue, create, pull request, branch, delete")
    assert line.count("create") == 1


@pytest.mark.parametrize("names", [["x" * 128] * 3, [f"n{'x' * n}" for n in range(200)], ["x" * 5000]])
def test_a_line_is_bounded_whatever_the_names_are(names: list[str]) -> None:
    assert 0 < len(in_words(names, "s")) <= ROOM + 1
