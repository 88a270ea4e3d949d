"""`mcpd unload` and `mcpd describe` on a real daemon: what the client hears, and what outlives a restart."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.harness import META, Daemon, RawClient, changeable, scripted, serving
from tests.e2e.loading import META_TOOLS
from tests.e2e.test_sessions import LIST_CHANGED
from tests.scripted_server import tool

CHANGED = "notifications/tools/list_changed"
LOADING = {"default": {"surface": "load"}}


@contextmanager
def connected(daemon: Daemon, **said: str) -> Iterator[RawClient]:
    """A client that has shaken hands, and is told of changes therefore."""
    with daemon.client().hello(**said) as client:
        client.greet()
        yield client


def test_a_tool_that_is_taken_away_is_told_refused_and_gone_after_a_restart() -> None:
    with serving({"mcpServers": {"s": changeable(tool("read"), tool("write"))}, "profiles": LOADING}) as daemon:
        with connected(daemon, session="k") as client:
            client.load("read", "write")
            assert client.listed() == [*META_TOOLS, "read", "write"]
            assert daemon.run("unload", "k", "s/read") == "session k: s/read is not loaded any more\n"
            client.notice(CHANGED)
            assert client.listed() == [*META_TOOLS, "write"]
            assert "ToolNotLoaded" in client.call("read", {})["content"][0]["text"]
        daemon.restart()
        assert list(daemon.loaded("k")) == ["s/write"]
        # Nobody is connected to it now.
        daemon.run("unload", "k")
        assert list(daemon.loaded("k")) == []


def test_a_description_is_written_with_comments_kept_and_models_are_told() -> None:
    config = {
        "mcpServers": {"s": scripted(tools=[tool("read", description="Theirs.")])},
        "profiles": {"default": {"surface": "full"}},
        "categories": {"c": {"server": "s"}},
    }
    with serving(config) as daemon:
        before = "// mine\n" + daemon.config.read_text(encoding="utf-8")
        daemon.config.write_text(before, encoding="utf-8")
        with connected(daemon) as client:
            listed = client.ask("tools/list")["result"]["tools"]
            assert [each["description"] for each in listed] == ["Theirs."]
            assert "s/read has that description now" in daemon.run("describe", "s/read", "Ours.")
            client.notice(CHANGED)
            listed = client.ask("tools/list")["result"]["tools"]
            assert [each["description"] for each in listed] == ["Ours."]
            assert daemon.config.read_text(encoding="utf-8").startswith("// mine\n")
            daemon.run("describe", "s/read", "--reset")
            client.notice(CHANGED)
            listed = client.ask("tools/list")["result"]["tools"]
            assert [each["description"] for each in listed] == ["Theirs."]


# --- clients are given other profiles while they are connected, by a real daemon -----------------------------


PROFILES: dict[str, Any] = {
    "default": {"surface": "full"},
    "review": {"surface": "full", "excludedTools": ["write"]},
    "found": {"surface": "search", "coreTools": ["read"]},
}
CONFIG = {"mcpServers": {"s": scripted(tools=[tool("read"), tool("write")])}, "profiles": PROFILES}


def refused(client: RawClient, name: str) -> bool:
    """Whether a call of that tool is refused: as an error of the protocol, or as a result."""
    answer = client.ask("tools/call", {"name": name, "arguments": {}})
    return "error" in answer or bool(answer["result"]["isError"])


def test_a_connected_client_is_given_another_profile_and_told() -> None:
    with (
        serving(CONFIG) as daemon,
        daemon.client() as shaken,
        daemon.client() as modern,
        daemon.client() as other,
    ):
        shaken.hello(session="work", surface="category").ask("initialize", {"protocolVersion": "2025-06-18"})
        shaken.ask("tools/list")
        modern.hello(session="work")
        modern.subscribe(toolsListChanged=True)
        modern.ask("tools/list", {"_meta": META})
        assert other.listed() == ["read", "write"]

        said = daemon.run("sessions", "work", "--profile", "review")

        assert "its 2 connections have profile review now" in said
        shaken.notice(LIST_CHANGED)
        modern.notice(LIST_CHANGED)
        assert shaken.listed() == ["read"]
        assert (refused(shaken, "write"), refused(shaken, "read")) == (True, False)
        assert other.listed() == ["read", "write"]
        assert daemon.ask("sessions", key="work")["profile"] == "review"
        with daemon.client() as later:
            assert later.hello(session="work", profile="default").listed() == ["read"]

        daemon.ask("move", key="work", profile="found")
        shaken.notice(LIST_CHANGED)
        assert shaken.listed() == ["search_tools", "call_tool", "call_read_only_tool", "read"]
