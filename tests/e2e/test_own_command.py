"""The example of docs/operators.md, taken from there: a further command is two files and three lines."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli.control import RemoteFault
from tests.e2e.harness import ROOT, program, running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

CONFIG: dict[str, Any] = {
    "mcpServers": {"time": {"command": program("mcp-server-time"), "args": ["--local-timezone", "UTC"]}}
}
LAST_COMMAND = "        LOGS,\n"
ITS_IMPORT = "from daemon.operators.own_requests import CALL\n"
LAST_OF_CLI = '    "schema": ('
LAST_OF_MODULES = '    "daemon.cli.use": '


def insert(path: Path, before: str, line: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, line + before))


def with_the_example(place: Path) -> Path:
    """A copy of the package with what the page says: two files, their lines in the tables, and an import."""
    page = (ROOT / "docs" / "operators.md").read_text()
    command, cli = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    line, cli_line, cli_module = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    shutil.copytree(ROOT / "daemon", place / "daemon", ignore=shutil.ignore_patterns("__pycache__"))
    operators = place / "daemon" / "operators"
    (operators / "epochs.py").write_text(command)
    insert(operators / "command_table.py", LAST_COMMAND, line)
    insert(operators / "command_table.py", ITS_IMPORT, "from daemon.operators.epochs import EPOCHS\n")
    (place / "daemon" / "cli" / "epochs.py").write_text(cli)
    insert(place / "daemon" / "cli" / "table.py", LAST_OF_CLI, cli_line)
    insert(place / "daemon" / "cli" / "table.py", LAST_OF_MODULES, cli_module)
    return place


def test_the_example_of_the_page_is_answered_when_it_is_added_as_the_page_says(tmp_path: Path) -> None:
    with running(CONFIG, code=with_the_example(tmp_path)) as daemon:
        daemon.ready()
        assert daemon.ask("epochs") == {"time": 1}
        assert daemon.ask("epochs", server="time") == {"time": 1}
        with pytest.raises(RemoteFault, match="Did you mean time"):
            daemon.ask("epochs", server="tiem")
        assert json.loads(daemon.run("epochs")) == {"time": 1}
