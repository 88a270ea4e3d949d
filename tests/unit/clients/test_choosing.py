"""Which servers a client may choose, and what it is told where it may not."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.clients.client import MAX_CHOSEN, fault_of_choice, read_choice
from tests.unit.catalog.samples import servers
from tests.unit.config.reading import config_of

CATEGORIES: dict[str, Any] = {
    "whole": {"server": "git"},
    "named": {"tools": {"includeNames": ["hg/log"]}},
    "borrowed": {"server": "git", "tools": {"includeNames": ["fs/read"]}},
    "any": {"tools": {"includePatterns": ["read_*"]}},
}
PROFILES: dict[str, Any] = {
    "reader": {"categories": ["whole"]},
    "logs": {"categories": ["named", "borrowed"]},
    "open": {"categories": ["any"]},
    "more": {"categories": ["named"], "includedOptionalTools": ["fs/read"]},
    "bare": {"categories": ["named"], "includedOptionalTools": ["read"]},
}
CONFIG = config_of({"mcpServers": servers("git", "hg", "fs"), "categories": CATEGORIES, "profiles": PROFILES})


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (None, ()),
        (["git"], ("git",)),
        (["hg", "git", "hg"], ("hg", "git")),
        ("git", None),
        ([], None),
        (["git", 7], None),
        ([""], None),
        ({"git": 1}, None),
        (["git"] * (MAX_CHOSEN + 1), None),
    ],
)
def test_servers_are_named_in_a_list(said: object, read: tuple[str, ...] | None) -> None:
    assert read_choice(said) == read


@pytest.mark.parametrize(
    ("profile", "shown"),
    [
        ("default", {"git", "hg", "fs"}),
        ("reader", {"git"}),
        ("logs", {"git", "hg", "fs"}),
        ("open", {"git", "hg", "fs"}),
        ("more", {"hg", "fs"}),
        ("bare", {"git", "hg", "fs"}),
    ],
)
def test_what_a_profile_shows_nothing_of_cannot_be_chosen(profile: str, shown: set[str]) -> None:
    chosen = {
        name for name in CONFIG.mcp_servers if not fault_of_choice(CONFIG, CONFIG.profiles[profile], (name,))
    }
    assert chosen == shown


def test_without_categories_each_server_is_one() -> None:
    plain = config_of({"mcpServers": servers("git", "hg"), "profiles": {"reader": {"categories": ["git"]}}})
    reader = plain.profiles["reader"]
    assert fault_of_choice(plain, reader, ("git",)) == ""
    assert "profile 'reader' shows nothing of server 'hg'" in fault_of_choice(plain, reader, ("git", "hg"))


def test_a_refusal_names_what_is_close_and_what_there_is_in_this_profile() -> None:
    default, reader = CONFIG.profiles["default"], CONFIG.profiles["reader"]
    fault = fault_of_choice(CONFIG, default, ("gti",))
    assert fault == (
        "there is no server 'gti' in mcpd's configuration. Did you mean git? There are: git, hg, fs."
    )
    assert "hg" not in fault_of_choice(CONFIG, reader, ("gti",))
    assert len(fault_of_choice(CONFIG, default, ("x" * 9999,))) < 500
    assert fault_of_choice(CONFIG, default, ("git", "gti")) == "", "a reload may have removed it for a while"
    assert "not a list" in fault_of_choice(CONFIG, default, None)
    assert fault_of_choice(CONFIG, default, ()) == ""
