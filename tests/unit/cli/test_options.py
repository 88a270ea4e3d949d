"""What all command lines have in common."""

from __future__ import annotations

import argparse

import pytest

from daemon.cli.options import ANSWER_SECONDS, add_control, add_json, count, parser


def test_help_ends_with_examples_and_exit_statuses() -> None:
    shown = parser("x", "Does it.", examples=("mcpd x y",), exits={0: "done", 78: "bad"}).format_help()
    assert "usage: mcpd x" in shown
    statuses = "0   done\n  2   usage\n  3   the daemon cannot be reached\n  78  bad\n"
    assert shown.endswith(f"examples:\n  mcpd x y\n\nexit status:\n  {statuses}")


@pytest.mark.parametrize("alone", [{"asks": False}, {"reaches": False}])
def test_a_command_that_asks_no_daemon_does_not_say_that_it_may_be_out_of_reach(alone: dict[str, bool]) -> None:
    shown = parser("x", "", examples=(), exits={0: "done"}, **alone).format_help()
    assert shown.endswith("exit status:\n  0   done\n  2   usage\n")


def test_the_shared_options_have_defaults() -> None:
    made = parser("x", "", examples=(), exits={})
    add_json(made)
    add_control(made)
    unsaid = {"socket": None, "json": False, "control": None, "timeout": ANSWER_SECONDS}
    assert vars(made.parse_args([])) == unsaid
    assert vars(made.parse_args(["--json", "--socket", "s", "--control", "p", "--timeout", "0.5"])) == {
        "socket": "s",
        "json": True,
        "control": "p",
        "timeout": 0.5,
    }


@pytest.mark.parametrize("word", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_that_is_no_time_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = parser("x", "", examples=(), exits={})
    add_control(made)
    with pytest.raises(SystemExit) as ended:
        made.parse_args([f"--timeout={word}"])
    assert ended.value.code == 2
    assert f"'{word}' is not a number of seconds over 0" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["0", "-1", "1.5", "\N{SUPERSCRIPT TWO}", "many", ""])
def test_what_is_no_whole_number_over_0_is_no_count(word: str) -> None:
    assert count("20") == 20
    with pytest.raises(argparse.ArgumentTypeError, match="whole number over 0"):
        count(word)
