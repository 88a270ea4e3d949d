"""What was asked for: read within bounds."""

import pytest

from daemon.catalog.snapshot import Catalog
from daemon.facts import Fact
from daemon.search.index import Index
from daemon.search.language import ToolAction
from daemon.search.segment import MAX_CHARACTERS, MAX_CLAUSES, MAX_PHRASINGS, MAX_TERMS, read
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool


@cases("text", "names")
def test_a_phrasing_and_words_that_look_like_names_may_be_names(text: str, names: list[str]) -> None:
    assert list(read([text]).names) == names


@cases("text", "parts")
def test_a_single_word_is_looked_for_within_names(text: str, parts: list[str]) -> None:
    assert list(read([text]).substrings) == parts


@pytest.mark.parametrize("texts", [[], [""], ["  ", "\n"], ["🛠"], ["the of"]])
def test_nothing_asked_for_has_no_terms(texts: list[str]) -> None:
    assert read(texts).phrases == ()


def test_whatever_is_asked_for_is_cut() -> None:
    long = read([" ".join(f"word{number}x" for number in range(100_000))])
    assert len(long.phrases[0]) <= MAX_TERMS
    assert sum(map(len, long.phrases[0])) <= MAX_CHARACTERS
    assert len(read(["file"] * 10_000).phrases) == MAX_PHRASINGS
    assert read(["file " * MAX_CHARACTERS + "tail"]).phrases == (("file",),)
    assert len(read([" ".join(f"a_{number}" for number in range(1000))]).names) == MAX_TERMS + 1


def test_a_need_of_several_parts_has_clauses_with_what_each_asks_for() -> None:
    query = read(["I lost my phone! Please cancel the old contract and create a new contract, now."])
    assert [(clause.terms, clause.asked) for clause in query.clauses] == [
        (("lost", "phone"), frozenset()),
        (("cancel", "old", "contract"), {ToolAction.REMOVE}),
        (("creat", "new", "contract"), {ToolAction.MAKE}),
    ]
    assert query.asked == frozenset()


@pytest.mark.parametrize(
    "text",
    ["create a contract", "read and write files", "files, folders, links", "read long files, big folders", ""],
)
def test_a_need_of_one_part_has_no_clauses(text: str) -> None:
    assert read([text]).clauses == ()


def test_the_parts_of_a_need_are_its_clauses_also_where_only_one_says_what_to_do() -> None:
    query = read(["I lost my phone! Please cancel the contract.", "phone contract"])
    assert query.clauses == ()
    assert query.asked == {ToolAction.REMOVE}
    assert query.parts == (("lost", "phone"), ("cancel", "contract"), ("phone", "contract"))


def test_clauses_are_bounded() -> None:
    assert len(read(["find big trees. " * 120] * 3).clauses) == MAX_CLAUSES


# --- A need that nothing fits finds nothing, and one that something fits is not refused ----------------------


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


@cases("need")
def test_a_need_that_nothing_fits_finds_nothing(need: str) -> None:
    assert INDEX.search([need]).hits == ()


@cases("need", "name")
def test_a_need_that_something_fits_finds_it_whatever_else_it_says(need: str, name: str) -> None:
    assert name in [hit.key[1] for hit in INDEX.search([need], limit=3).hits]


@cases("need", "name", "said")
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
