"""`mcpd lazy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation
from daemon.cli.settings import switches
from daemon.operators.report_words import RISKS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Controls

main = implementation("lazy").main

PROFILE = {
    "on": True,
    "surface": "browse",
    "configured": "browse",
    "categories": None,
    "description": None,
    "sessions": 1,
}
ANSWER: dict[str, Any] = {
    "lazy": True,
    "config": "/c.json",
    "profiles": {"reader": PROFILE},
    "changed": None,
    "note": "",
}


def test_switches_are_shown_with_what_they_mean(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"lazy": ANSWER})
    assert main([]) == 0
    assert daemon.asked == [("lazy", {"on": None, "profile": None})]
    assert capsys.readouterr().out.splitlines() == [
        "lazy on: each profile shows what its own switch and surface say",
        "  reader on: browse, tools to list categories, to describe tools and to call them; 1 session",
        RISKS,
    ]


def test_a_switch_is_thrown_and_what_was_written_is_said(control: Controls) -> None:
    daemon = control({"lazy": ANSWER})
    assert main(["off", "--profile", "reader"]) == 0
    assert daemon.asked == [("lazy", {"on": False, "profile": "reader"})]
    changed = {"file": "/c.json", "place": "$.lazy", "already": False}
    answer: Any = {**ANSWER, "changed": changed, "note": "and so on", "lazy": False}
    assert switches(answer).startswith(
        "written at $.lazy in /c.json\nnote: and so on\nlazy off: every profile shows every"
    )


def test_a_configuration_is_written_without_a_daemon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mcpd.json"
    config.write_text('{"lazy": true} // mine\n')
    config.chmod(0o600)
    words = ["--config", str(config), "--socket", str(tmp_path / "none.sock")]
    assert main(["off", *words]) == 0
    assert config.read_text() == '{"lazy": false} // mine\n'
    assert "written at $.lazy" in capsys.readouterr().out
    config.write_text('{"lazzy": true}')
    assert main(["off", *words]) == 78
    assert "nothing was changed" in capsys.readouterr().err


def test_a_file_alone_is_no_wish(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--config", str(tmp_path / "mcpd.json")])
