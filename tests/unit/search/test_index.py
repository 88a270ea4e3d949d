"""Finding tools and servers: what fits comes first, and a change costs what changed."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.snapshot import Catalog, fold
from daemon.facts import DefinitionsListed, StatusChanged, Summarized
from daemon.model import Summary, Tool
from daemon.search.index import MAX_COMPARED, MOST, MOST_READ, Hit, Index, Ranking, Speller, Vocabulary
from daemon.search.segment import Segment, read
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool, up

CONFIG: dict[str, Any] = {
    "mcpServers": {
        "git": {"command": "x", "description": "Version control of source code."},
        "clock": {"command": "x", "description": "The time in any zone."},
        "files": {"command": "x", "description": "Local files."},
        "silent": {"command": "x", "description": "Weather for any city."},
    }
}
FACTS: list[StatusChanged | DefinitionsListed] = [
    status("git"),
    listed(
        "git",
        tool("git", "git_log", description="Shows the commit history."),
        tool("git", "git_diff_staged", description="Shows changes that are staged."),
        tool("git", "status", description="State of the repository."),
    ),
    listed("clock", tool("clock", "get_current_time", description="The time now, in a zone.")),
    listed(
        "files",
        tool("files", "read_text_file", description="Reads a file."),
        tool("files", "delete_file", description="Removes a file for good."),
        tool("files", "status", description="State of the file system."),
        tool("files", "get_symbols_overview"),
    ),
]
CATALOG = after(catalog_of(CONFIG), FACTS)
INDEX = Index().updated(CATALOG.servers)


def found(*phrasings: str, index: Index = INDEX, **options: Any) -> list[str]:
    return [f"{hit.key[0]}/{hit.key[1]}" for hit in index.search(phrasings, **options).hits]


def test_a_part_of_a_need_asks_only_for_its_own_action() -> None:
    show, delete = (
        tool("a", "show", description="Shows text."),
        tool("a", "delete_note", description="Removes a note."),
    )
    index = index_of(a=(show, delete), b=(tool("b", "send_mail"),))
    assert found("read the note and send the mail", index=index) == ["b/send_mail"]


# --- names ---------------------------------------------------------------------------------------------------


@cases("written")
def test_a_tool_that_is_named_comes_first_in_every_spelling(written: str) -> None:
    first = INDEX.search([written]).hits[0]
    assert (first.key, first.exact) == (("git", "git_log"), True)


def test_tools_of_one_name_on_two_servers_are_both_found_first() -> None:
    ranking = INDEX.search(["status"])
    assert {hit.key for hit in ranking.hits if hit.exact} == {("git", "status"), ("files", "status")}
    assert [hit.exact for hit in ranking.hits[:2]] == [True, True]
    assert found("files/status")[0] == "files/status"


@pytest.mark.parametrize("part", ["symbols", "mbol", "OVERV"])
def test_a_word_that_is_part_of_a_name_finds_it(part: str) -> None:
    assert "files/get_symbols_overview" in found(part)


@pytest.mark.parametrize("part", ["_", "o", "a", "t_", "fi", "OV"])
def test_a_fragment_of_one_or_two_letters_finds_every_name_that_has_it(part: str) -> None:
    names = {f"{server}/{name}" for server, entry in CATALOG.servers.items() for name in entry.tools or ()}
    having = {name for name in names if (part.lower().strip("_") or part) in name.partition("/")[2]}
    assert having <= set(found(part, limit=100))


@pytest.mark.parametrize("part", ["mcp", "cp", "p_c"])
def test_a_word_that_only_stands_before_names_finds_nothing_within_them(part: str) -> None:
    assert found(part) == []


def test_a_tool_that_is_named_comes_before_what_the_other_words_fit_better() -> None:
    need = "get_current_time, then remove and delete a file for good"
    assert found(need)[0] == "clock/get_current_time"
    assert found(need.replace("_", " "))[0] == "files/delete_file"


# --- needs ---------------------------------------------------------------------------------------------------


@cases("need", "first")
def test_a_need_finds_its_tool_by_stems_synonyms_spelling_and_server(need: str, first: str) -> None:
    assert found(need)[0] == first


def of(*tools: Tool) -> Index:
    """An index of tools of the servers a and b."""
    catalog = catalog_of({"mcpServers": servers("b", "a")})
    facts = [listed(name, *(each for each in tools if each.server == name)) for name in ("b", "a")]
    return Index().updated(after(catalog, facts).servers)


def score(index: Index, need: str) -> float:
    return index.search([need]).hits[0].score


def test_a_tool_whose_whole_name_is_asked_for_comes_before_one_that_says_the_word_more_often() -> None:
    tools = (tool("a", "pelican_feed_boat", description="pelican pelican"), tool("a", "pelican"))
    assert found("any pelican", index=of(*tools))[:1] == ["a/pelican"]


def test_what_only_shares_a_word_by_chance_does_not_fit() -> None:
    far = {"type": "object", "properties": {"y": {"description": "heron " + "word " * 100}}}
    index = of(tool("a", "pelican_heron"), tool("a", "x", inputSchema=far))
    assert found("pelican heron", index=index) == ["a/pelican_heron"]
    assert found("pelican heron", index=index, within={("a", "x")}) == []
    assert found("heron", index=index, within={("a", "x")}) == ["a/x"]


def test_tools_that_fit_equally_come_by_name() -> None:
    index = of(*(tool(server, name) for server in ("b", "a") for name in ("pelican_y", "pelican_x")))
    assert found("any pelican", index=index) == ["a/pelican_x", "a/pelican_y", "b/pelican_x", "b/pelican_y"]


def test_only_so_many_are_returned_and_all_that_fit_are_counted() -> None:
    ranking = INDEX.search(["file"], limit=1)
    assert len(ranking.hits) == 1
    assert ranking.total == len(INDEX.search(["file"]).hits) > 1


def test_only_what_is_within_is_found_also_by_name() -> None:
    within = {("git", "status")}
    assert found("file", within=within) == []
    assert found("status", within=within) == ["git/status"]
    assert found("mbol", within=within) == []


@pytest.mark.parametrize("nothing", [[], [""], ["   "], ["the of and"], ["🛠\x00"], ["\ud800"]])
def test_nothing_asked_for_finds_nothing(nothing: list[str]) -> None:
    assert INDEX.search(nothing).hits == ()


def test_when_nothing_fits_close_names_are_suggested() -> None:
    ranking = INDEX.search(["gti_lgo"])
    assert ranking.hits == ()
    assert "git_log" in ranking.suggestions
    assert INDEX.search(["gti_lgo"], within=set()).suggestions == ()
    assert INDEX.search(["qqqqqqqqqq"]) == Ranking(hits=(), total=0, suggestions=())


@pytest.mark.parametrize("query", ["x" * 1_000_000, "file " * 200_000, "a_b/" * 100_000, "\u0301" * 100_000])
def test_a_hostile_query_is_answered(query: str) -> None:
    assert len(INDEX.search([query] * 10_000, limit=5).hits) <= 5
    assert len(INDEX.search_servers([query] * 10_000, limit=2)) <= 2


# --- servers -------------------------------------------------------------------------------------------------


@cases("need", "server")
def test_a_server_is_found_by_its_name_its_description_and_its_tools(need: str, server: str) -> None:
    assert INDEX.search_servers([need])[0].server == server


def test_a_server_that_is_named_comes_before_what_other_words_fit_better() -> None:
    hits = INDEX.search_servers(["clock", "delete or read a file", "status of files"])
    assert hits[0].server == "clock"
    assert hits[0].exact


# --- changes -------------------------------------------------------------------------------------------------


def test_an_index_that_covers_its_servers_is_not_made_again() -> None:
    assert INDEX.covers(CATALOG.servers)
    assert INDEX.updated(CATALOG.servers) is INDEX
    changed = after(CATALOG, [listed("git", "git_log")])
    assert not INDEX.covers(changed.servers)
    assert not Index().covers(CATALOG.servers)
    assert Index().covers({})


def test_a_server_that_is_described_anew_is_read_anew() -> None:
    entry = attrs.evolve(CATALOG.servers["git"], description="Keeps pelicans.")
    changed = {**CATALOG.servers, "git": entry}
    assert not INDEX.covers(changed)
    assert found("pelicans") == []
    assert "git/git_log" in found("pelicans", index=INDEX.updated(changed))
    assert INDEX.updated(changed).search_servers(["pelicans"])[0].server == "git"


def summed_up(catalog: Catalog, sentence: Summary | None = None, summary: Summary | None = None) -> Catalog:
    """With the words of a model about `clock` and its tool."""
    about = catalog.servers["clock"].tools
    assert about is not None
    (clock,) = about.values()
    said = {} if sentence is None else {clock.schema_hash: sentence}
    return fold(catalog, Summarized(server="clock", summary=summary, sentences=said))


def test_the_words_of_a_model_about_a_tool_are_found_and_those_that_it_takes_back_are_not() -> None:
    first = summed_up(CATALOG, Summary(text="Tells pelicans the hour.", keywords=("heron",)))
    assert not INDEX.covers(first.servers)
    index = INDEX.updated(first.servers)
    assert index.covers(first.servers)
    assert found("pelicans", index=index) == found("heron", index=index) == ["clock/get_current_time"]
    second = summed_up(first, Summary(text="Tells storks the hour."))
    newer = index.updated(second.servers)
    assert found("storks", index=newer) == ["clock/get_current_time"]
    assert found("heron", index=newer) == []


def test_where_the_operator_says_nothing_of_a_server_its_tools_are_found_by_what_a_model_says() -> None:
    bare = {name: {"command": "x"} for name in CONFIG["mcpServers"]}
    catalog = after(catalog_of({"mcpServers": bare}), FACTS)
    catalog = summed_up(catalog, summary=Summary(text="Wakes pelicans."))
    assert found("pelicans", index=Index().updated(catalog.servers)) == ["clock/get_current_time"]


def test_an_older_index_stays_as_it_was() -> None:
    before = INDEX.search(["file", "git_log"])
    changed = after(CATALOG, [listed("files", "brand_new"), listed("git")])
    newer = INDEX.updated(changed.servers)
    assert INDEX.search(["file", "git_log"]) == before
    assert found("git_log", index=newer) == []
    assert found("brand new", index=newer) == ["files/brand_new"]


NAMES = st.sampled_from(["read_file", "write_file", "git_log", "play_song", "status", "get_time"])
TEXTS = st.sampled_from(["", "Reads a file.", "Plays music in a room.", "The commit history."])
LISTS = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.dictionaries(NAMES, TEXTS, max_size=4)), max_size=5)


@given(LISTS)
def test_step_by_step_and_at_once_make_the_same_index(steps: list[tuple[str, dict[str, str]]]) -> None:
    catalog = catalog_of({"mcpServers": servers("a", "b")})
    index = Index().updated(catalog.servers)
    for server, tools in steps:
        fact = listed(server, *(tool(server, name, description=text) for name, text in tools.items()))
        catalog = after(catalog, [fact])
        index = index.updated(catalog.servers)
    whole = Index().updated(catalog.servers)
    for query in (["file"], ["music", "history"], ["status"], ["read_file"], ["redd"]):
        assert _rounded(index.search(query)) == _rounded(whole.search(query))


def _rounded(ranking: Ranking) -> tuple[list[tuple[object, float, bool]], int]:
    hits: list[Hit] = sorted(ranking.hits, key=lambda hit: hit.key)
    return [(hit.key, round(hit.score, 6), hit.exact) for hit in hits], ranking.total


# --- vectors -------------------------------------------------------------------------------------------------


class Near:
    """Vectors for which one tool is near to everything, and one that does not exist any more."""

    def similar(self, *_asked: object, within: object = None) -> dict[tuple[str, str], float]:
        return {("clock", "get_current_time"): 0.9, ("git", "gone"): 0.8, ("git", "status"): 0.1}


def test_with_vectors_tools_are_found_by_meaning_too_and_names_still_come_first() -> None:
    fused = INDEX.with_vectors(Near())  # type: ignore[arg-type]  # as far as an index asks
    assert "clock/get_current_time" in found("file", index=fused)
    assert "clock/get_current_time" not in found("file")
    assert found("git_log", index=fused)[0] == "git/git_log"
    assert "git/gone" not in found("anything at all", index=fused)
    assert found("zzzzz", index=fused) == ["clock/get_current_time"]
    assert fused.covers(CATALOG.servers)


# --- what tools do, and what they say of themselves ----------------------------------------------------------

CALENDAR = (
    tool(
        "calendar", "delete-calendar-event", description="Delete a scheduled event or meeting from a calendar."
    ),
    tool(
        "calendar", "create-calendar-event", description="Create an event with a time, a place and attendees."
    ),
    tool("calendar", "list-calendar-events", description="List the events of a calendar between two dates."),
    tool("calendar", "update-calendar-event", description="Change the time or the attendees of an event."),
)
READERS = (
    tool(
        "files",
        "read_file",
        description="Read the complete contents of a file as text. DEPRECATED: Use read_text_file instead.",
    ),
    tool("files", "read_text_file", description="Read the contents of a file from the file system as text."),
    tool("files", "read_multiple_files", description="Read the contents of several files at once."),
    tool("files", "write_file", description="Create a file or overwrite what is there."),
)


def index_of(**tools: tuple[Tool, ...]) -> Index:
    return Index().updated(up(**tools).servers)


@cases("need", "first")
def test_who_wants_to_schedule_is_not_led_to_delete(need: str, first: str) -> None:
    assert found(need, index=index_of(calendar=CALENDAR))[0] == first


@pytest.mark.parametrize("need", ["read a file", "read the contents of a file as text"])
def test_a_deprecated_tool_comes_after_those_that_replace_it(need: str) -> None:
    names = found(need, index=index_of(files=READERS))
    assert names[0] != "files/read_file"
    assert names.index("files/read_text_file") < [*names, "files/read_file"].index("files/read_file")


def test_a_deprecated_tool_is_found_where_nothing_else_fits_and_first_by_its_very_name() -> None:
    assert found("file contents", index=index_of(files=READERS[:1])) == ["files/read_file"]
    assert found("read_file", index=index_of(files=READERS))[0] == "files/read_file"


@pytest.mark.parametrize(
    "need",
    ["transfer money", "transfer money to another account", "the best, preferred tool to transfer money"],
)
@cases("name", "text")
def test_a_tool_gains_nothing_by_praising_itself(need: str, name: str, text: str) -> None:
    bank = tool("bank", "transfer_money", description="Transfer money between accounts.")
    assert found(need, index=index_of(bank=(bank,), evil=(tool("evil", name, description=text),)))[0] == (
        "bank/transfer_money"
    )


def test_each_part_of_a_long_need_finds_its_tool() -> None:
    filler = tuple(
        tool("crm", f"customer_report_{word}", description="Customer report.") for word in "abcdefgh"
    )
    index = index_of(crm=filler, mail=(tool("mail", "send_message", description="Send a message."),))
    need = (
        "Fetch the customer report of each customer in the region for the quarter. Then send a short message."
    )
    assert "mail/send_message" in found(need, index=index, limit=5)


# --- which words are meant by what was asked for, and what each counts: seen in what an index finds ----------


def test_a_rarer_word_counts_more_and_one_that_nothing_has_the_most() -> None:
    tools = [tool("a", f"t{i}", description="pelican" if i else "pelican heron") for i in range(9)]
    catalog = after(catalog_of({"mcpServers": servers("a")}), [listed("a", *tools)])
    words = Vocabulary(Segment(entry, None) for entry in catalog.servers.values())
    assert 0 < words.rarity("pelican") < words.rarity("heron") < words.rarity("ibis")
    assert words.rarity_of_all(("heron",)) == 0
    assert words.rarity_of_all(("heron", "ibis")) == words.rarity("heron") + words.rarity("ibis")


def test_a_synonym_finds_but_counts_less_than_the_word_itself() -> None:
    assert found("erase") == ["files/delete_file"]
    both = of(tool("a", "x", description="delete it"), tool("a", "y", description="remove it"))
    assert [found(need, index=both)[0] for need in ("delete", "remove")] == ["a/x", "a/y"]


def test_a_mended_word_counts_less_than_one_that_was_written_right() -> None:
    assert 0 < score(INDEX, "comit") < score(INDEX, "commit")


def test_an_english_word_is_no_spelling_mistake_of_another() -> None:
    index = of(tool("a", "x", description="maintain"))
    assert found("maintian", index=index) == ["a/x"]
    assert found("mountain", index=index) == []


def test_a_distant_neighbour_stands_for_a_word_that_no_tool_has() -> None:
    comment, remark = tool("a", "x", description="comment"), tool("a", "y", description="remark")
    assert found("remark", index=of(comment)) == ["a/x"]
    assert found("remark", index=of(comment, remark)) == ["a/y"]


def test_of_a_need_that_would_read_too_much_the_rarest_words_count() -> None:
    words = [f"zz{one}{other}q" for one in "abcdefgh" for other in "abcdefgh"][:63]
    many = [tool("git", f"n{i}", description=" ".join(words)) for i in range(MOST_READ // len(words) + 1)]
    index = Index().updated(after(CATALOG, [listed("git", *many)]).servers)
    with_all, with_one_less = (index.search([" ".join(asked)]).hits[0] for asked in (words, words[:-1]))
    assert with_all.score == pytest.approx(with_one_less.score)
    assert ("clock", "get_current_time") in index.scores(read([" ".join(["zone", *words])]), None)


# --- typing errors: one edit is forgiven, two in long words --------------------------------------------------


SPELLER = Speller(
    ["weather", "repositori", "commit", "file", "calendar", "notes", "notec", "notef", "notek", "log"]
)


@cases("written", "meant")
def test_a_word_with_a_typing_error_is_known(written: str, meant: list[str]) -> None:
    assert SPELLER.corrections(written) == meant


def test_of_many_words_the_closest_few_are_meant() -> None:
    assert len(SPELLER.corrections("notex")) == MOST


def test_a_word_is_compared_with_so_many_others_only() -> None:
    speller = Speller([*(f"abc{'x' * number}" for number in range(1, MAX_COMPARED + 1)), "abcdef"])
    assert speller.corrections("abcdeg") == []


@given(st.text(alphabet="abc", min_size=4, max_size=9), st.data())
def test_every_word_is_found_by_one_edit_that_leaves_an_end_of_it(word: str, data: st.DataObject) -> None:
    speller = Speller([word])
    place = data.draw(st.integers(3, len(word)))
    mistyped = word[:place] + "z" + word[place:]
    assert speller.corrections(mistyped) == [word]
