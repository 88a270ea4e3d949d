"""Which surface fits a client, by what it says it is."""

from __future__ import annotations

import pytest

from daemon.surfaces.table import (
    AUTO,
    MAX_TOLD,
    SEARCHING_CLIENTS,
    SURFACES,
    ClientInfo,
    Grounds,
    fitting,
    may_defer,
)

FEW = 84
"""Tools of the ten servers that clients were tried with."""


def fit(name: str, version: str, tools: int = FEW) -> tuple[str, str]:
    choice = fitting(ClientInfo(name, version), lambda: tools)
    return choice.surface, str(choice.grounds)


SEARCHES = ("full", "searches_itself")
OLDER = ("category", "older_client")
UNREADABLE = ("category", "unreadable_version")
UNKNOWN = ("category", "unknown_client")


@pytest.mark.parametrize(
    ("name", "version", "found", "defers"),
    [
        ("claude-code", "2.1.329", SEARCHES, True),
        ("claude-code", "2.1.329-beta.2", SEARCHES, True),
        ("claude-code", "v2.1.400", SEARCHES, True),
        ("claude-code", "2.1.1000", SEARCHES, True),
        ("claude-code", "2.2", SEARCHES, True),
        ("claude-code", "10.0.0", SEARCHES, True),
        ("claude-code", f"2.{'9' * 5000}", SEARCHES, True),
        ("claude-code", "2.1.328", OLDER, False),
        ("claude-code", "2.1.197", OLDER, False),
        ("claude-code", "2.1", OLDER, False),
        ("claude-code", "1.9.999", OLDER, False),
        ("claude-code", "", UNREADABLE, True),
        ("claude-code", "next", UNREADABLE, True),
        ("claude-code", "x" * 10_000, UNREADABLE, True),
        ("claude-code", "\u0662.\u0661.\u0663", UNREADABLE, True),
        ("codex-mcp-client", "0.169.0", SEARCHES, True),
        ("codex-mcp-client", "0.142.2", SEARCHES, True),
        ("codex-mcp-client", "0.142.1", OLDER, False),
        ("codex-mcp-client", "", UNREADABLE, True),
        ("codex", "1.0", SEARCHES, True),
        ("codexology", "1", UNKNOWN, False),
        ("my-codex", "1", UNKNOWN, False),
        ("Claude-Code", "2.1.329", UNKNOWN, False),
        ("opencode", "1.18.33", UNKNOWN, False),
        ("gemini-cli-mcp-client", "0.61.0", UNKNOWN, False),
        ("x" * 10_000, "2.1.329", UNKNOWN, False),
        ("", "2.1.329", ("category", "silent_client"), False),
        ("", "", ("category", "silent_client"), False),
    ],
)
def test_a_client_is_known_by_its_name_and_version(
    name: str, version: str, found: tuple[str, str], *, defers: bool
) -> None:
    assert fit(name, version) == found
    assert may_defer(ClientInfo(name, version)) is defers


@pytest.mark.parametrize("known", SEARCHING_CLIENTS, ids=lambda known: known.name)
def test_a_client_is_given_as_many_tools_as_it_can_take_and_else_categories(known: object) -> None:
    client = next(each for each in SEARCHING_CLIENTS if each is known)
    version = ".".join(map(str, client.since))
    assert fit(client.name, version, client.tools) == SEARCHES
    assert fit(client.name, version, client.tools + 1) == ("category", "too_many_tools")


def test_tools_are_counted_only_where_their_number_decides() -> None:
    def count() -> int:
        raise AssertionError

    for name, version in (("opencode", "1"), ("claude-code", "2.1.197"), ("codex", "?"), ("", "")):
        assert fitting(ClientInfo(name, version), count).surface == "category"


def test_what_has_decided_is_kept_with_the_choice() -> None:
    choice = fitting(ClientInfo("claude-code", "2.1.329"), lambda: FEW)
    assert (choice.client.text, choice.tools, choice.most) == ("claude-code 2.1.329", FEW, 500)
    assert choice.since == (2, 1, 329)
    assert choice.grounds is Grounds.SEARCHES_ITSELF


def test_of_what_a_client_says_it_is_only_so_much_is_kept() -> None:
    endless = ClientInfo("n" * 10_000, "v" * 10_000)
    assert len(endless.name) == len(endless.version) == len(endless.text) == MAX_TOLD
    assert ClientInfo("n", "1").text == "n 1"
    assert ClientInfo("", "").text == ""


def test_what_fits_is_a_surface_and_the_word_for_it_is_none() -> None:
    assert {fit("opencode", "")[0], fit("codex", "1")[0]} < set(SURFACES)
    assert AUTO not in SURFACES
