"""The example of docs/surfaces.md, taken from there: a sixth surface is one file and one line."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.harness import ROOT, program, running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

CONFIG: dict[str, Any] = {
    "mcpServers": {"time": {"command": program("mcp-server-time"), "args": ["--local-timezone", "UTC"]}},
    "profiles": {"default": {"surface": "names"}},
}


def with_the_example(place: Path) -> Path:
    """A copy of the package with what the page says: the file, the line, and the line's import."""
    page = (ROOT / "docs" / "surfaces.md").read_text()
    (file,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (line,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    shutil.copytree(ROOT / "daemon", place / "daemon", ignore=shutil.ignore_patterns("__pycache__"))
    surfaces = place / "daemon" / "surfaces"
    (surfaces / "names.py").write_text(file)
    table = (surfaces / "table.py").read_text()
    last = "        FullSurface(),\n"
    imports = "from daemon.surfaces.full import FullSurface, ItselfSurface\n"
    assert last in table
    assert imports in table
    table = table.replace(last, last + line)
    table = table.replace(imports, imports + "from daemon.surfaces.names import NamesSurface\n")
    (surfaces / "table.py").write_text(table)
    return place


def test_the_example_of_the_page_serves_clients_when_it_is_added_as_the_page_says(tmp_path: Path) -> None:
    with running(CONFIG, code=with_the_example(tmp_path)) as daemon, daemon.client() as client:
        daemon.ready()
        (listed,) = client.ask("tools/list")["result"]["tools"]
        assert listed["name"] == "tool_names"
        names = client.call("tool_names", {})["structuredContent"]["names"]
        assert names == ["get_current_time", "convert_time"]
        result = client.call("get_current_time", {"timezone": "UTC"})
        assert json.loads(result["content"][0]["text"])["timezone"] == "UTC"
        assert "names" in daemon.run("schema")
