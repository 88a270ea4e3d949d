"""A file without mcpd, where somebody has edited it since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from daemon.documents.formats import Format
from daemon.setup.clients.file_plans import take_out
from daemon.setup.clients.installing import NamedEntry, Record
from tests.unit.cases import cases

OWN = {"command": "/opt/bin/mcpd", "args": ["connect"]}
GIT = {"command": "git", "env": {"A": "1"}}
ONE_TO_ONE = {"command": "/opt/bin/mcpd", "args": ["connect", "--server", "git"], "timeout": 5}


def record(original: str | None, installed: Any, *names: str) -> Record:
    return Record(
        path=Path("/x.json"),
        form=Format.JSON,
        members=tuple(NamedEntry(("mcpServers",), name) for name in names),
        original=original,
        installed=installed if isinstance(installed, str) else json.dumps(installed),
    )


def says(text: str | None) -> Any:
    assert text is not None
    return json.loads(text)


def test_comments_of_a_server_that_is_put_back_come_with_it() -> None:
    original = '{\n  "mcpServers": {\n    // for work\n    "git": {}, // mine\n    "b": {}\n  },\n  "n": 1\n}\n'
    own = '"mcpd": {"command": "mcpd", "args": ["connect"]}'
    installed = f'{{\n  "mcpServers": {{\n    "b": {{}},\n    {own}\n  }},\n  "n": 1\n}}\n'
    out = take_out(record(original, installed, "git", "mcpd"), installed.replace('"n": 1', '"n": 2'))
    assert out.text == original.replace('"n": 1', '"n": 2')
    assert not out.exact
    assert out.back == ("git",)


def test_a_server_that_the_user_has_put_there_since_is_kept() -> None:
    before = json.dumps({"mcpServers": {"git": GIT}})
    done = record(before, {"mcpServers": {"mcpd": OWN}}, "git", "mcpd")
    out = take_out(
        done, json.dumps({"mcpServers": {"mcpd": {**OWN, "timeout": 9}, "git": {"command": "mine"}}})
    )
    assert says(out.text) == {"mcpServers": {"git": {"command": "mine"}}}
    assert (out.back, out.kept) == ((), ("git",))


def test_what_was_rewritten_is_written_back_and_its_other_keys_stay() -> None:
    before = json.dumps({"mcpServers": {"git": {**GIT, "timeout": 5}}})
    done = record(before, {"mcpServers": {"git": ONE_TO_ONE}}, "git")
    edited = {"mcpServers": {"git": {**ONE_TO_ONE, "timeout": 60, "alwaysAllow": ["a"]}}}
    out = take_out(done, json.dumps(edited))
    assert says(out.text) == {"mcpServers": {"git": {**GIT, "timeout": 60, "alwaysAllow": ["a"]}}}
    assert out.back == ("git",)


def test_what_the_user_has_removed_since_stays_removed() -> None:
    before = json.dumps({"mcpServers": {"git": GIT}})
    done = record(before, {"mcpServers": {"git": ONE_TO_ONE}}, "git")
    assert says(take_out(done, '{"mcpServers": {}}').text) == {"mcpServers": {}}


@cases("original", "current", "left")
def test_what_was_made_for_mcpd_goes_with_it(original: str | None, current: Any, left: Any) -> None:
    done = record(original, {"mcpServers": {"mcpd": OWN}}, "mcpd")
    text = take_out(done, json.dumps(current)).text
    assert (None if text is None else json.loads(text)) == left


def test_a_file_that_is_as_it_was_already_is_left() -> None:
    done = record("{ }", {"mcpServers": {"mcpd": OWN}}, "mcpd")
    out = take_out(done, "{ }")
    assert (out.text, out.exact) == ("{ }", True)
