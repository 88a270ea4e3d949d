"""Variables that servers share, divided among them."""

from __future__ import annotations

from pathlib import Path

from daemon.config.parse import load
from daemon.setup.drafts import read_present
from daemon.setup.moved_secrets import with_own_variables


def case(name: str) -> str:
    return (Path(__file__).parent / "cases" / f"own_variables_{name}").read_text()


def test_each_server_gets_its_own_variables_and_nothing_else_changes(tmp_path: Path) -> None:
    path, env = tmp_path / "mcpd.json", tmp_path / "env"
    path.write_text(case("before.json"))
    env.write_text(case("kept.env"))
    env.chmod(0o600)
    before = load(path, {})
    made = with_own_variables(read_present(path), {})
    assert "tok-1" not in made.draft.diff()
    made.draft.write()
    assert path.read_text() == case("after.json")
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
