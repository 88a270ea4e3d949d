"""One server's part of the index: what is the same is taken over, and numbers stay with their tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.catalog.entry import KnownList
from daemon.catalog.snapshot import ServerEntry
from daemon.facts import ServerStatus
from daemon.model import Kind, Summary
from daemon.search.language import OPPOSED, OTHERWISE, ToolAction
from daemon.search.queries import Phrase
from daemon.search.segment import CLAUSE, SERVER, Segment
from daemon.states import ServerState
from tests.unit.catalog.samples import tool

if TYPE_CHECKING:
    from daemon.model import Tool

READ = tool("files", "read_file", description="Reads a pelican.")
MOVE = tool("files", "move-file", description="Moves a pelican, a heron.")
DROP = tool("files", "drop", description="Drops a heron.")


def entry(*tools: Tool, description: str = "Local files.", **more: Any) -> ServerEntry:
    """A server that lists these."""
    bare = ServerEntry(name="files", description=description, status=ServerStatus(state=ServerState.READY))
    known = KnownList(definitions={each.name: each for each in tools})
    return attrs.evolve(bare, lists={Kind.TOOL: known}, **more)


def having(segment: Segment, term: str) -> dict[str, float]:
    """The tools that have a term, with its weight."""
    return {segment.key(number)[1]: weight for number, weight in zip(*segment.postings.row(term), strict=True)}


# --- postings ------------------------------------------------------------------------------------------------


# --- segments ------------------------------------------------------------------------------------------------


def test_a_segment_is_of_one_state_of_its_server() -> None:
    now = entry(READ)
    segment = Segment(now)
    assert segment.is_of(now)
    assert segment.is_of(attrs.evolve(now, epoch=9, begun=9.0))
    assert not segment.is_of(entry(READ))
    assert not segment.is_of(attrs.evolve(now, description="others"))
    assert not segment.is_of(attrs.evolve(now, summary=Summary(text="others")))
    assert (len(segment), "read_file" in segment, "drop" in segment) == (1, True, False)


def test_a_server_that_never_listed_has_a_segment_without_tools() -> None:
    segment = Segment(attrs.evolve(entry(), lists={}))
    assert (len(segment), "read_file" in segment) == (0, False)
    assert segment.scores([Phrase([[("file", 1.0)]])]) == []
    assert "local" in segment.words


def test_tools_that_are_the_same_are_taken_over_under_their_new_numbers() -> None:
    old = Segment(entry(READ, MOVE, DROP))
    new = Segment(entry(DROP, tool("files", "brand_new", description="Finds a heron."), READ), old)
    assert new.digests["drop"] is old.digests["drop"]
    assert new.digests["read_file"] is old.digests["read_file"]
    assert having(new, "pelican") == {"read_file": having(old, "pelican")["read_file"]}
    assert having(new, "heron").keys() == {"drop", "brand_new"}
    assert having(new, "move") == {}
    assert "move" not in new.postings
    assert having(old, "heron").keys() == {"move-file", "drop"}


def test_what_is_said_of_the_server_reads_all_of_its_tools_anew_and_a_sentence_its_own_only() -> None:
    old = Segment(entry(READ, DROP))
    described = Segment(entry(READ, DROP, description="Storks."), old)
    assert having(described, "stork").keys() == {"read_file", "drop"}
    said = Segment(entry(READ, DROP, sentences={READ.schema_hash: Summary(text="Storks.")}), old)
    assert having(said, "stork").keys() == {"read_file"}
    assert said.digests["drop"] is old.digests["drop"]


def test_of_terms_for_one_word_the_closest_counts_and_those_of_others_add_up() -> None:
    segment = Segment(entry(READ, MOVE, DROP))
    pelican, heron = having(segment, "pelican"), having(segment, "heron")
    one_word = segment.scores([Phrase([[("pelican", 2.0), ("heron", 0.5)]])])
    assert one_word == pytest.approx([2 * pelican["read_file"], 2 * pelican["move-file"], heron["drop"] / 2])
    two_words = segment.scores([Phrase([[("pelican", 2.0)], [("heron", 0.5)]])])
    assert two_words[1] == pytest.approx(2 * pelican["move-file"] + heron["move-file"] / 2)
    assert segment.scores([Phrase([[("pelican", 2.0)]]), Phrase([[("heron", 0.5)]])]) == pytest.approx(
        two_words
    )


def test_the_best_clause_counts_half_more_and_its_server_s_best_tool_helps_the_others() -> None:
    segment = Segment(entry(READ, MOVE, tool("files", "x")))
    pelican, heron = Phrase([[("pelican", 2.0)]]), Phrase([[("heron", 0.5)]])
    whole, first, second = (
        segment.scores([each]) for each in (Phrase(pelican.terms + heron.terms), pelican, heron)
    )
    expected = [
        one + CLAUSE * max(other, another) for one, other, another in zip(whole, first, second, strict=True)
    ]
    gain = SERVER * max(expected)
    scores = segment.scores([Phrase(pelican.terms + heron.terms)], [pelican, heron])
    assert scores == pytest.approx([expected[0] + gain, expected[1] + gain, 0.0])


def test_a_tool_that_does_another_thing_than_was_asked_for_counts_less() -> None:
    segment = Segment(entry(READ, MOVE, DROP))
    file = [[("pelican", 1.0)], [("heron", 1.0)]]
    plain, asked = segment.scores([Phrase(file)]), segment.scores([Phrase(file, frozenset({ToolAction.READ}))])
    assert asked == pytest.approx([plain[0], plain[1] * OTHERWISE, plain[2] * OPPOSED])
