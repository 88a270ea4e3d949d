"""A need that nothing fits finds nothing, and one that something fits is not refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.search.index import Index
from daemon.search.queries import LEAST_SCORE, LEAST_SHARE, MOST_SHARE, SMALL, is_chance
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog
    from daemon.facts import Fact


def described(server: str, **tools: str) -> list[Fact]:
    found = [tool(server, name, description=said) for name, said in tools.items()]
    return [status(server), listed(server, *found)]


def known() -> Catalog:
    """Three servers, described as the recorded ones are."""
    git = described(
        "git",
        git_log="Shows the commit logs.",
        git_diff="Shows differences between branches or commits.",
        git_commit="Records changes to the repository.",
    )
    files = described(
        "files",
        read_file="Read the complete contents of a file as text. Handles various text encodings.",
        write_file="Create a new file or completely overwrite an existing file with new content.",
        list_directory="Get a detailed listing of all files and directories in a specified path.",
    )
    clock = described(
        "clock",
        get_current_time="Get current time in a specific timezone.",
        convert_time="Convert time between timezones.",
    )
    return after(catalog_of({"mcpServers": servers("git", "files", "clock")}), [*git, *files, *clock])


INDEX = Index().updated(known().servers)


@pytest.mark.parametrize(
    "need",
    [
        "book a flight to Tokyo",
        "play some jazz music",
        "translate a poem into French",
        "what is the weather in Berlin tomorrow",
        "reserve a table at a restaurant",
        "compose a melody for the violin",
        "check my blood pressure",
        "write a eulogy for my grandfather",
        "convert my old cassette tapes",
        "create a knitting pattern",
    ],
)
def test_a_need_that_nothing_fits_finds_nothing(need: str) -> None:
    assert INDEX.search([need]).hits == ()


@pytest.mark.parametrize(
    ("need", "name"),
    [
        ("read a file", "read_file"),
        ("write something", "write_file"),
        ("what did I commit lately", "git_commit"),
        ("show the history of commits", "git_log"),
        ("which time is it in Berlin right now", "get_current_time"),
        ("encodings", "read_file"),
        ("timezone", "get_current_time"),
        ("the contents of the folder that the project is in", "list_directory"),
        ("git_diff", "git_diff"),
        ("direct", "list_directory"),
    ],
)
def test_a_need_that_something_fits_finds_it_whatever_else_it_says(need: str, name: str) -> None:
    assert name in [hit.key[1] for hit in INDEX.search([need], limit=3).hits]


@pytest.mark.parametrize(
    ("need", "name", "said"),
    [
        ("email Bob the quarterly report", "send_email", "[Deprecated] Send an email to a recipient."),
        ("make the background of this photo transparent", "remove_background", "Remove an image's background"),
    ],
)
def test_the_only_tool_that_fits_is_found_whatever_puts_it_behind_its_like(
    need: str, name: str, said: str
) -> None:
    catalog = after(catalog_of({"mcpServers": servers("only")}), described("only", **{name: said}))
    index = Index().updated(catalog.servers)
    assert [hit.key[1] for hit in index.search([need]).hits] == [name]


FOREIGN = "Book a flight to Tokyo, and then translate a poem into French. Also reserve a table at a restaurant"


def test_parts_that_nothing_fits_find_nothing_together() -> None:
    assert INDEX.search([FOREIGN]).hits == ()
    assert INDEX.search([FOREIGN, "play some jazz music"]).hits == ()


def test_one_part_that_something_fits_is_enough() -> None:
    assert INDEX.search([f"{FOREIGN}, and show the commit logs"], limit=1).hits[0].key == ("git", "git_log")


def test_what_a_search_is_confined_to_is_judged_by_itself() -> None:
    files = {("files", "read_file"), ("files", "write_file")}
    assert INDEX.search(["what time is it in Berlin right now"], within=files).hits == ()


def test_little_is_no_chance_where_little_was_asked_for() -> None:
    assert not is_chance(1.0, 1.0 / LEAST_SHARE, SMALL)
    assert is_chance(1.0, 1.1 / LEAST_SHARE, SMALL)
    assert not is_chance(LEAST_SCORE, 1000.0, SMALL)
    assert not is_chance(0.0, 0.0, SMALL)
    assert is_chance(1.0, 1.1 / LEAST_SHARE, 0)


def test_chance_does_more_among_more_tools() -> None:
    assert is_chance(LEAST_SCORE + 1, 1000.0, 2 * SMALL)
    assert not is_chance(LEAST_SCORE + 1, 1000.0, SMALL)
    assert is_chance(1.0, 1.0 / LEAST_SHARE, 2 * SMALL)
    assert not is_chance(1.0, 1.0 / MOST_SHARE, 1000 * SMALL)
