"""Calls as tables for people."""

from __future__ import annotations

from daemon.cli.terminal import Screen
from daemon.cli.views import render_calls
from tests.unit.cli.test_calls import ENDED, WAITING, answer

NARROW = Screen(width=80, colour=False)


def test_it_is_said_that_there_are_none() -> None:
    shown = render_calls(answer(), errors_only=False, screen=NARROW)
    assert shown == "No call is in flight.\n\nNo call has ended since the daemon began."


def test_eighty_columns_are_enough_and_the_number_is_whole() -> None:
    tool = "a_tool_with_a_name_that_is_longer_than_any_that_was_ever_seen_in_the_wild" * 2
    waiting = {**WAITING, "id": 123_456, "tool": tool, "waitsFor": "server", "client": "client " * 9}
    ended = {**ENDED, "tool": tool, "outcome": "UpstreamUnavailable"}
    shown = render_calls(answer(waiting, ended=(ended,)), errors_only=False, screen=NARROW)
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "123456 46s its server" in shown
    assert "UpstreamUnavailable" in shown


def test_a_narrow_screen_does_without_the_clients_and_cuts_nothing_else() -> None:
    ended = {**ENDED, "tool": "a_tool_with_a_long_name", "outcome": "UpstreamLost"}
    shown = render_calls(
        answer(WAITING, ended=(ended,)), errors_only=False, screen=Screen(width=40, colour=False)
    )
    assert all(len(line) <= 40 for line in shown.splitlines())
    assert "CLIENT" not in shown
    assert "UpstreamLost" in shown
    assert "46s the answer" in shown


def test_what_was_left_out_is_counted() -> None:
    assert "and 12 more" in render_calls(answer(WAITING, inFlightMore=12), errors_only=False, screen=NARROW)


def test_names_are_made_safe_and_instances_named() -> None:
    waiting = {**WAITING, "instance": "git#4", "client": "x\x1b[2J\n"}
    shown = render_calls(answer(waiting), errors_only=False, screen=NARROW)
    assert "git#4/git_log" in shown
    assert "\x1b" not in shown
