"""Variables that servers share, divided among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.parse import load
from daemon.setup.drafts import read_present
from daemon.setup.moved_secrets import with_own_variables

if TYPE_CHECKING:
    from pathlib import Path

BEFORE = """{
  // mine
  "servers": {
    "a": {"command": "x", "env": {"API_TOKEN": "${API_TOKEN}", /* why */ "PYTHONPATH": "${PYTHONPATH}"}}, // a
    "b": {"command": "x", "args": ["API_TOKEN", "$API_TOKEN", "${env:OTHER}", "$${OTHER}"]},
    "c": {"command": "x", "args": ["${C__KEY}", "${BOTH}"]},
  },
  "summaries": {"baseUrl": "https://h/v1", "model": "m", "apiKeyEnv": "BOTH"},
}
"""
AFTER = """{
  // mine
  "servers": {
    "a": {"command": "x", "env": {"API_TOKEN": "${A__API_TOKEN}", /* why */ "PYTHONPATH": "/x y"}}, // a
    "b": {"command": "x", "args": ["API_TOKEN", "${B__API_TOKEN}", "${B__OTHER}", "$${OTHER}"]},
    "c": {"command": "x", "args": ["${C__KEY}", "${C__BOTH}"]},
  },
  "summaries": {"baseUrl": "https://h/v1", "model": "m", "apiKeyEnv": "BOTH"},
}
"""
KEPT = """# tokens
API_TOKEN=tok-1
PYTHONPATH="/x y"
OTHER=oth-1

# mine
BOTH=bot-1
HTTPS_PROXY=http://p
C__KEY=key-1
"""


def test_each_server_gets_its_own_variables_and_nothing_else_changes(tmp_path: Path) -> None:
    path, env = tmp_path / "mcpd.json", tmp_path / "env"
    path.write_text(BEFORE)
    env.write_text(KEPT)
    env.chmod(0o600)
    before = load(path, {})
    made = with_own_variables(read_present(path), {})
    assert "tok-1" not in made.draft.diff()
    made.draft.write()
    assert path.read_text() == AFTER
    lines = env.read_text().splitlines()
    assert lines[:5] == ["# tokens", "", "# mine", "BOTH=bot-1", "HTTPS_PROXY=http://p"]
    assert set(lines[5:]) == {
        "C__KEY=key-1",
        "A__API_TOKEN=tok-1",
        "B__API_TOKEN=tok-1",
        "B__OTHER=oth-1",
        "C__BOTH=bot-1",
    }
    assert made.unused == ("HTTPS_PROXY",)
    after = load(path, {})
    for name, server in before.mcp_servers.items():
        assert (after.mcp_servers[name].args, after.mcp_servers[name].env) == (server.args, server.env)
    assert with_own_variables(read_present(path), {}).draft.diff() == ""
