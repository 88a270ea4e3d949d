"""One line about a server, a category or a tool: whose words count."""

from __future__ import annotations

import pytest

from daemon.catalog.snapshot import fold
from daemon.facts import Summarized
from daemon.model import Summary
from daemon.surfaces.answers import MAX_LINE
from daemon.surfaces.summing import category_line, first_sentence, server_line, tool_line
from tests.catalog.samples import after, catalog_of, listed, tool

LOG = tool("git", "log", description="Shows the\n commits. Takes a path.")
BARE = after(catalog_of({"mcpServers": {"git": {"command": "x"}}}), [listed("git", LOG)])
SAID = Summarized(
    server="git",
    summary=Summary(text="Keeps versions of source code."),
    sentences={LOG.schema_hash: Summary(text="Lists what was committed.")},
)


def test_a_model_says_what_a_server_is_for_where_the_operator_does_not() -> None:
    assert server_line(BARE.servers["git"]) == ""
    assert server_line(fold(BARE, SAID).servers["git"]) == "Keeps versions of source code."
    described = catalog_of({"mcpServers": {"git": {"command": "x", "description": "Ours."}}})
    assert server_line(fold(described, SAID).servers["git"]) == "Ours."


def test_a_server_that_is_a_category_is_described_as_the_server() -> None:
    assert category_line(BARE, BARE.categories["git"]) == "Tools of the MCP server git."
    said = fold(BARE, SAID)
    assert category_line(said, said.categories["git"]) == "Keeps versions of source code."


def test_a_configured_category_is_described_by_the_configuration_only() -> None:
    config = {
        "mcpServers": {"git": {"command": "x"}},
        "categories": {"git": {"server": "git"}, "other": {"server": "git", "description": "Ours."}},
    }
    said = fold(after(catalog_of(config), [listed("git", LOG)]), SAID)
    assert [category_line(said, each) for each in said.categories.values()] == ["", "Ours."]


def test_a_tool_is_summed_up_by_its_first_sentence_until_a_model_has_spoken() -> None:
    assert tool_line(BARE.servers["git"], LOG, LOG.description) == "Shows the commits."
    assert tool_line(fold(BARE, SAID).servers["git"], LOG, LOG.description) == "Lists what was committed."


def test_what_an_operator_says_of_a_tool_counts_most() -> None:
    assert tool_line(fold(BARE, SAID).servers["git"], LOG, "Ours. Both of them.") == "Ours. Both of them."


def test_a_sentence_about_a_tool_as_it_was_does_not_count() -> None:
    changed = tool("git", "log", description="Shows nothing at all. Never.")
    entry = after(fold(BARE, SAID), [listed("git", changed)]).servers["git"]
    assert tool_line(entry, changed, changed.description) == "Shows nothing at all."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ""),
        ("   \n ", ""),
        ("Reads a file", "Reads a file"),
        ("Reads a file. Writes it.", "Reads a file."),
        ("\n\n  Reads a file!\nArgs: path", "Reads a file!"),
        ("Reads a file\nfrom the disk. Args: path", "Reads a file\nfrom the disk."),
        ("Reads a file\n\nArgs:\n  path", "Reads a file"),
        ("Reads files, e.g. texts, i.e. words. More.", "Reads files, e.g. texts, i.e. words."),
        ("Sets version 1.2 of a file. More.", "Sets version 1.2 of a file."),
        ("读取一个文本文件的内容。写入文件。", "读取一个文本文件的内容。"),
        ("1. Reads a file", "1. Reads a file"),
        ("Git\n\nShows the commits.", "Git\n\nShows the commits."),
    ],
)
def test_the_first_sentence_of_a_text(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_a_line_is_one_line_and_bounded_whatever_was_said() -> None:
    endless = tool("git", "x", description="word\n" * 10_000)
    line = tool_line(BARE.servers["git"], endless, endless.description)
    assert len(line) == MAX_LINE
    assert "\n" not in line
