"""What `mcpd add` is told of a server: commands, urls and packages, and which version they are pinned to."""

from __future__ import annotations

import pytest

from daemon.setup.adding import WordsError, pairs, wanted, with_versions


@pytest.mark.parametrize(
    ("words", "name", "entry"),
    [
        (["time", "--", "uvx", "mcp-server-time"], "time", {"command": "uvx", "args": ["mcp-server-time"]}),
        (["here", "--", "/opt/server"], "here", {"command": "/opt/server"}),
        (["x", "https://example.com/mcp"], "x", {"url": "https://example.com/mcp"}),
        (["x", "wss://example.com/mcp"], "x", {"url": "wss://example.com/mcp"}),
        (["x", "/run/x.sock"], "x", {"url": "/run/x.sock"}),
        (["pypi:mcp-server-time"], "time", {"command": "uvx", "args": ["mcp-server-time"]}),
        (["pypi:mcp_thing[cli]==1.2"], "mcp-thing", {"command": "uvx", "args": ["mcp_thing[cli]==1.2"]}),
        (["npm:@modelcontextprotocol/server-memory"], "memory", None),
        (
            ["npm:@playwright/mcp@0.1.2"],
            "playwright",
            {"command": "npx", "args": ["-y", "@playwright/mcp@0.1.2"]},
        ),
        (["npm:chrome-devtools-mcp"], "chrome-devtools", None),
        (["notes", "npm:@scope/server-memory"], "notes", None),
    ],
)
def test_words_name_a_server(words: list[str], name: str, entry: dict[str, object] | None) -> None:
    cut = words.index("--") if "--" in words else len(words)
    found = wanted(words[:cut], words[cut + 1 :])
    assert found.name == name.replace("mcp-thing", "mcp_thing")
    assert entry is None or found.entry == entry


@pytest.mark.parametrize(
    ("words", "command", "says"),
    [
        ([], [], "write a name"),
        (["time"], [], "say what 'time' is"),
        (["https://mcp.notion.com/mcp"], [], "`mcpd add notion https://mcp.notion.com/mcp`"),
        (["http://localhost:9/mcp"], [], "`mcpd add NAME http://localhost:9/mcp`"),
        (["time", "uvx", "mcp-server-time"], [], r"mcpd add time -- uvx mcp-server-time"),
        (["time", "uvx"], [], "behind --"),
        (["My Time"], ["uvx"], "write my-time"),
        ([], ["uvx"], "one name before --"),
    ],
)
def test_words_that_name_none_are_told_what_to_write(words: list[str], command: list[str], says: str) -> None:
    with pytest.raises(WordsError, match=says):
        wanted(words, command)


@pytest.mark.parametrize(
    ("command", "args", "loose"),
    [
        (["npx", "-y", "@scope/pkg", "--x"], ["-y", "@scope/pkg@1.2.3", "--x"], ()),
        (["npx", "-y", "pkg@latest"], ["-y", "pkg@1.2.3"], ()),
        (["uvx", "--from", "pkg[cli]", "tool"], ["--from", "pkg[cli]==1.2.3", "tool"], ()),
        (["uvx", "pkg==1.0"], ["pkg==1.0"], ()),
        (["npx", "owner/repository"], ["owner/repository"], ()),
        (["npx", "./here"], ["./here"], ()),
        (["uvx", "unknown"], ["unknown"], ("unknown",)),
        (["docker", "run", "image"], ["run", "image"], ()),
    ],
)
def test_packages_are_pinned_to_the_version_that_is_found(
    command: list[str], args: list[str], loose: tuple[str, ...]
) -> None:
    server = wanted(["x"], command)
    found = with_versions(server, lambda package: None if package.name == "unknown" else "1.2.3")
    assert (found.entry["args"], found.loose) == (args, loose)


def test_pairs_are_told_apart_and_an_error_repeats_no_value() -> None:
    assert pairs(["A=b=c", "D="], "=", "key") == {"A": "b=c", "D": ""}
    assert pairs(["Authorization: Bearer x:y"], ":", "header") == {"Authorization": "Bearer x:y"}
    with pytest.raises(WordsError) as caught:
        pairs(["secret"], "=", "key")
    assert "secret" not in str(caught.value)
