"""`mcpd summaries`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Controls

main = implementation("summaries").main

STATE = {
    "model": "little",
    "endpoint": "host:1",
    "asked": 2,
    "answered": 1,
    "sentences": 5,
    "refused": 1,
    "given_up": 0,
    "waiting": 3,
    "last_error": "host:1 answered HTTP 500",
}
ANSWER: dict[str, Any] = {"state": STATE, "config": "/c.json", "prompt": "You\nwrite", "sends": "Names."}
TEST = {"answer": "{}\u202e", "seconds": 1.24, "tokensRead": 7, "tokensWritten": None, "fault": ""}


def told(control: Controls, capsys: pytest.CaptureFixture[str], *words: str, **more: object) -> tuple[int, str]:
    control({"summaries": {**ANSWER, **more}})
    status = main([*words])
    return status, capsys.readouterr().out


def test_the_state_is_shown_with_the_prompt_and_what_is_sent_where(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = told(control, capsys)
    assert (status, said.splitlines()) == (
        0,
        [
            "little at host:1",
            "2 questions, 1 answered; 5 sentences taken, 1 refused; 3 waiting, 0 given up",
            "last error: host:1 answered HTTP 500",
            "",
            "What is sent to host:1: Names.",
            "",
            "The prompt, which cannot be changed:",
            "  You",
            "  write",
        ],
    )


def test_nothing_configured_and_switched_off_are_said(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = control({"summaries": {**ANSWER, "state": None}})
    assert main([]) == 0
    off = {"model": "little", "endpoint": "host:1", "off": "nothing is asked: switched off"}
    daemon.answers["summaries"] = {**ANSWER, "state": off}
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "no model is configured" in said
    assert "nothing is asked: switched off" in said


def test_models_are_listed_with_the_chosen_one(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(control, capsys, "--models", models=["big", "little"]) == (0, "  big\n* little\n")


def test_an_endpoint_without_models_is_said_to_have_none(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no models" in told(control, capsys, "--models", models=[])[1]


def test_a_choice_says_where_it_was_written(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    changed = {"file": "/c.json", "place": "$.summaries.model", "already": False}
    said = told(control, capsys, "--model", "big", changed=changed)
    assert said == (0, "written at $.summaries.model in /c.json\n")


def test_an_answer_is_shown_harmless_with_its_time_and_tokens(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(control, capsys, "--test", "hi", test=TEST) == (0, "{}\\u202e\n\n1.2s, 7 tokens read\n")


def test_an_answer_that_cannot_be_used_is_a_failure(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = told(control, capsys, "--test", test={**TEST, "fault": "no JSON"})
    assert (status, said.splitlines()[-1]) == (1, "it cannot be used: no JSON")


def test_a_model_is_written_into_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "mcpd.json"
    config.write_text('{"summaries": {"baseUrl": "http://127.0.0.1:1/v1", "model": "a"}}')
    config.chmod(0o600)
    words = ["--config", str(config), "--socket", str(tmp_path / "none.sock")]
    assert main(["--model", "b", *words]) == 0
    assert '"model": "b"' in config.read_text()
    assert "$.summaries.model" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(words)
