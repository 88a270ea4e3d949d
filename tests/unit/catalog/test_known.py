"""What is known of a list outlives failures and empty starts, and nothing else."""

from __future__ import annotations

from daemon.catalog.entry import EMPTIED, KnownList, after_listing, look_alike
from daemon.catalog.snapshot import fold
from daemon.model import Kind
from tests.unit.catalog.samples import catalog_of, definition, prompts, recalled, servers

PLAN = definition(Kind.PROMPT, "git", "plan")
KNOWN = after_listing(None, prompts("git", PLAN))


def test_a_list_replaces_what_was_known() -> None:
    after = after_listing(KNOWN, prompts("git", "review", quarantined={"bad": "nested too deeply"}))
    assert list(after.definitions) == ["review"]
    assert after.quarantined == {"bad": "nested too deeply"}
    assert after_listing(KNOWN, prompts("git", PLAN)) is KNOWN


def test_a_failure_keeps_what_was_known_and_says_why() -> None:
    after = after_listing(KNOWN, prompts("git", problem="timed out"))
    assert (after.definitions, after.problem) == (KNOWN.definitions, "timed out")
    assert after_listing(after, prompts("git", PLAN)) == KNOWN
    assert after_listing(None, prompts("git", problem="timed out")).definitions == {}


def test_a_server_that_comes_back_with_none_keeps_those_that_it_had() -> None:
    after = after_listing(KNOWN, prompts("git", first=True))
    assert (list(after.definitions), after.problem) == (["plan"], EMPTIED.format("prompt"))
    assert after_listing(KNOWN, prompts("git")).definitions == {}
    undeclared = after_listing(KNOWN, prompts("git", first=True, declared=False))
    assert (undeclared.definitions, undeclared.declared) == ({}, False), "it no longer has any"
    assert after_listing(None, prompts("git", first=True)) == KnownList()


def test_a_name_with_hidden_characters_is_refused_and_other_hidden_characters_are_told() -> None:
    sly = definition(Kind.PROMPT, "git", "pl\u034fan")
    hiding = definition(Kind.PROMPT, "git", "plan", description="do\u202ethis")
    after = after_listing(None, prompts("git", sly, hiding))
    assert list(after.definitions) == ["plan"]
    assert after.hidden == {"plan": "1 hidden character: U+202E"}
    assert list(after.quarantined) == [r"pl\u034fan"]


def test_what_is_remembered_is_as_listed_but_for_its_source() -> None:
    begun = catalog_of({"mcpServers": servers("git")})
    known = fold(begun, recalled("git", lists={Kind.PROMPT: (PLAN,)})).servers["git"].list_of(Kind.PROMPT)
    assert known.recalled
    assert look_alike(Kind.PROMPT, known, KNOWN)
    assert not after_listing(known, prompts("git", PLAN)).recalled


def test_a_list_that_nobody_has_seen_looks_like_an_empty_one() -> None:
    assert look_alike(Kind.PROMPT, None, KnownList(problem="timed out"))
    assert look_alike(Kind.PROMPT, None, KnownList())
    assert not look_alike(Kind.TOOL, None, KnownList()), "the first list of tools is waited for"
    assert not look_alike(Kind.PROMPT, None, KNOWN)
    assert look_alike(
        Kind.PROMPT, KNOWN, KnownList(definitions={"plan": definition(Kind.PROMPT, "git", "plan")})
    )
