"""What a known server needs of its entry is told, and only where the entry does not say it."""

import re
from typing import Any

from daemon.config.command_lines import Advice, _row, advice, completed, known_servers, started
from daemon.config.config_model import Share
from tests.unit.cases import cases
from tests.unit.config.reading import server_of


def entry_of(line: str, **more: Any) -> dict[str, Any]:
    command, *args = line.split()
    return {"command": command, "args": args, **more}


def told(line: str, **more: Any) -> list[list[object]]:
    """Key and value of all advice on the entry with this command line."""
    found = advice(server_of(entry_of(line, **more)))
    return [[each.key, list(each.value) if isinstance(each.value, tuple) else each.value] for each in found]


@cases("line", "name")
def test_a_server_is_known_by_what_is_started_and_not_by_what_that_is_told(line: str, name: str | None) -> None:
    row = next(filter(None, map(_row, started(line.split()))), None)
    assert (row is None) == (name is None)
    assert row is None or name is None or any(name in each for each in row.names)


def test_a_server_elsewhere_or_switched_off_is_not_advised_on() -> None:
    assert advice(server_of({"url": "https://h/mcp-server-memory"})) == ()
    assert advice(server_of(entry_of("mcp-server-memory", enabled=False))) == ()


@cases("line", "more", "expected")
def test_what_an_entry_does_not_say_is_told_and_a_share_that_is_written_stands(
    line: str, more: dict[str, Any], expected: list[list[object]]
) -> None:
    assert told(line, **more) == expected


def test_a_directory_is_mounted_into_a_container() -> None:
    (found,) = advice(server_of(entry_of("docker run -i mcp/filesystem /projects")))
    assert found == Advice(key="args", value=("${workspace}",), why=found.why, in_container=True)


def test_a_completed_entry_needs_no_more_advice() -> None:
    for row in known_servers():
        entry = entry_of(next(iter(row.programs or row.names)))
        made, done = completed(entry, server_of(entry))
        assert advice(server_of(made)) == (), row.names
        assert all(row.why in each.written("x") or each.value == ("--isolated",) for each in done)


@cases("line", "more", "written")
def test_an_entry_is_completed_with_what_is_known(
    line: str, more: dict[str, Any], written: dict[str, Any]
) -> None:
    entry = entry_of(line, **more)
    assert completed(entry, server_of(entry))[0] == {**entry, **written}


def test_every_row_says_why_and_where_that_was_seen() -> None:
    names = [name for row in known_servers() for name in (*row.names, *row.programs)]
    assert len(names) == len(set(names))
    for row in known_servers():
        assert re.match(r"[a-z]", row.why), "it follows the name of the server"
        assert not row.why.endswith(".")
        assert row.source
        assert all(name == name.lower().replace("_", "-") for name in (*row.names, *row.programs))
        assert (row.share is Share.WORKSPACE) == bool(row.workspace)
