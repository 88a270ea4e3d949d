"""What is shown of a change, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.documents.formats import Format
from daemon.setup.clients.file_plans import difference
from tests.unit.cases import rows_of

SECRET = "bk-7Qm2xV9bT4Zr8Lw1"
ENTRIES = dict(rows_of(Path(__file__), "entries"))


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_secrets_are_never_shown(entry: object) -> None:
    before = json.dumps({"mcpServers": {"a": entry}}, indent=2)
    for old, new in ((before, "{}"), ("{}", before), (before, None), (None, before)):
        shown = difference(Path("/x.json"), old, new, Format.JSON)
        assert SECRET not in shown
        assert "[redacted]" in shown


def test_a_diff_names_the_file_and_has_little_around_a_change() -> None:
    before = "".join(f'k{number} = "{number}"\n' for number in range(9))
    shown = difference(Path("/x.toml"), before, before.replace('"4"', '"\\u001b"'), Format.TOML)
    assert shown.splitlines()[:2] == ["--- /x.toml", "+++ /x.toml"]
    assert [line for line in shown.splitlines() if line[:1] == " "] == [
        ' k2 = "2"', ' k3 = "3"', ' k5 = "5"', ' k6 = "6"',
    ]  # fmt: skip
    assert difference(Path("/x.toml"), before, before, Format.TOML) == ""
    assert difference(Path("/x.toml"), None, "a = 1\n", Format.TOML).startswith("--- /dev/null\n+++ /x.toml")


def test_names_of_variables_are_shown() -> None:
    after = '[mcp_servers.a]\nbearer_token_env_var = "NOTION_TOKEN"\n'
    assert '"NOTION_TOKEN"' in difference(Path("/x.toml"), None, after, Format.TOML)
