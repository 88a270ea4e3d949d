"""What `mcpd add` is told of a server: commands, urls and packages, and which version they are pinned to."""

from __future__ import annotations

import pytest

from daemon.setup.adding import WordsError, pairs, wanted, with_versions
from tests.unit.cases import cases


@cases("words", "name", "entry")
def test_words_name_a_server(words: list[str], name: str, entry: dict[str, object] | None) -> None:
    cut = words.index("--") if "--" in words else len(words)
    found = wanted(words[:cut], words[cut + 1 :])
    assert found.name == name.replace("mcp-thing", "mcp_thing")
    assert entry is None or found.entry == entry


@cases("words", "command", "says")
def test_words_that_name_none_are_told_what_to_write(words: list[str], command: list[str], says: str) -> None:
    with pytest.raises(WordsError, match=says):
        wanted(words, command)


@cases("command", "args", "loose")
def test_packages_are_pinned_to_the_version_that_is_found(
    command: list[str], args: list[str], loose: list[str]
) -> None:
    server = wanted(["x"], command)
    found = with_versions(server, lambda package: None if package.name == "unknown" else "1.2.3")
    assert (found.entry["args"], list(found.loose)) == (args, loose)


def test_pairs_are_told_apart_and_an_error_repeats_no_value() -> None:
    assert pairs(["A=b=c", "D="], "=", "key") == {"A": "b=c", "D": ""}
    assert pairs(["Authorization: Bearer x:y"], ":", "header") == {"Authorization": "Bearer x:y"}
    with pytest.raises(WordsError) as caught:
        pairs(["secret"], "=", "key")
    assert "secret" not in str(caught.value)
