"""Which extensions of the protocol pass between clients and servers."""

import msgspec
import pytest
from msgspec import Raw

from daemon.catalog.extensions import MAX_BYTES, bounded, carried, with_tasks
from daemon.protocol import UI
from tests.unit.cases import cases

TASKS = "io.modelcontextprotocol/tasks"
SKILLS = "io.modelcontextprotocol/skills"


@cases("declared", "alone", "shared")
def test_a_server_hears_only_of_extensions_that_pass(declared: str, alone: str, shared: str) -> None:
    def named(text: str) -> bytes:
        return text.replace("TASKS", TASKS).replace("UI", UI).replace("SKILLS", SKILLS).encode()

    assert carried(Raw(named(declared)), alone=True) == named(alone)
    assert carried(Raw(named(declared)), alone=False) == named(shared)


def test_an_extension_of_a_megabyte_is_dropped_and_the_others_stay() -> None:
    said = {"roots": {}, "extensions": {UI: {"a": 1}, "com.example/x": {"big": "x" * 1_000_000}, "b/c": {}}}
    raw = Raw(msgspec.json.encode(said))
    usable, dropped = bounded(raw)
    wanted = {"roots": {}, "extensions": {UI: {"a": 1}, "b/c": {}}}
    assert msgspec.json.decode(usable) == wanted
    assert dropped == f"extension 'com.example/x': not an object, or over {MAX_BYTES} bytes of extensions"
    assert msgspec.json.decode(carried(raw, alone=True)) == wanted


def test_many_small_extensions_are_bounded_together() -> None:
    said: dict[str, object] = {f"com.example/{number}": {} for number in range(100_000)}
    usable, dropped = bounded(Raw(msgspec.json.encode({"extensions": said})))
    kept = msgspec.json.decode(usable)["extensions"]
    assert 0 < len(kept) < MAX_BYTES / 10
    assert f"and {100_000 - len(kept) - 1} more" in dropped


@pytest.mark.parametrize("said", ["[]", "7", "null", '"x"'])
def test_extensions_that_are_no_object_are_dropped(said: str) -> None:
    usable, dropped = bounded(Raw(b'{"tools":{},"extensions":%b}' % said.encode()))
    assert bytes(usable) == b'{"tools":{},"extensions":{}}'
    assert "not an object" in dropped


@pytest.mark.parametrize("said", ["{}", "7", '{"extensions":{"a/b":{}}}', '["extensions"]', "{extensions"])
def test_what_has_no_bad_extension_stays_as_it_is(said: str) -> None:
    assert bounded(Raw(said.encode())) == (Raw(said.encode()), "")


@cases("declared", "polling")
def test_a_client_in_whose_name_mcpd_polls_has_the_tasks_extension(declared: str, polling: str) -> None:
    assert with_tasks(declared.encode()) == polling.replace("TASKS", TASKS).encode()
