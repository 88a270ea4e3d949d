"""A server in a file, whether servers are an object or a list."""

from __future__ import annotations

import pytest

from daemon.documents.formats import Format, read_document
from daemon.setup.clients.installing import NamedEntry, at, members

OBJECT = {"a": {"servers": {"git": {"command": "g"}, "time": {}}}}
LIST = {"a": {"servers": [{"name": "git", "command": "g"}, {"name": "time"}, {"uses": "x"}, 5]}}


@pytest.mark.parametrize(("value", "listed"), [(OBJECT, False), (LIST, True)])
def test_servers_are_found_by_name(value: object, listed: bool) -> None:
    found = members(value, ("a", "servers"), listed=listed)
    assert [each.name for each in found] == ["git", "time"]
    entry = found[0].entry(value)
    assert isinstance(entry, dict)
    assert entry["command"] == "g"
    assert NamedEntry(("a", "servers"), "gone", listed).entry(value) is None


@pytest.mark.parametrize(
    "value", [None, 5, [], {}, {"a": 5}, {"a": {"servers": "x"}}, {"a": {"servers": None}}]
)
def test_where_there_is_something_else_there_are_no_servers(value: object) -> None:
    assert members(value, ("a", "servers"), listed=False) == []
    assert NamedEntry(("a", "servers"), "git").entry(value) is None


@pytest.mark.parametrize("text", ["", "mcpServers: []\n", "mcpServers:\n  - name: time\n"])
def test_a_listed_server_is_added_replaced_and_removed(text: str) -> None:
    document = read_document(text, Format.YAML, source="x")
    before = document.value()
    member = NamedEntry(("mcpServers",), "git", listed=True)
    member.put(document, {"command": "a"})
    member.put(document, {"command": "b"})
    assert member.entry(document.value()) == {"name": "git", "command": "b"}
    member.remove(document)
    member.remove(document)
    assert document.value() == before or document.value() == {"mcpServers": []}


def test_a_trail_that_leads_nowhere_is_nothing() -> None:
    assert at({"a": [1]}, ("a", 0)) == 1
    assert at({"a": [1]}, ("a", 1)) is None
    assert at({"a": 1}, ("a", "b")) is None
