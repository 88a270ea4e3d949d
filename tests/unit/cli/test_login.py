"""`mcpd login`: what is shown, and what the exit status says; tests/e2e/test_logins.py logs in for real."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.cli.command import has_display
from daemon.cli.login import DEVICE_CODE, LINK
from daemon.cli.table import implementation
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls

READY: dict[str, Any] = {"server": "hub", "state": "ready", "reason": "", "tools": ["a", "b"], "scope": "x"}
URL = "https://as.example/authorize?state=1"


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)


def told(method: str, params: dict[str, Any], answer: dict[str, Any]) -> bytes:
    """A page, and the end of the login."""
    lines = ({"method": method, "params": params}, {"id": 1, "result": answer})
    return b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in lines)


def test_the_link_is_printed_and_then_what_is_offered(control: Controls, capsys: Captured) -> None:
    daemon = control({"login": told(LINK, {"url": URL}, READY)})
    assert implementation("login").main(["hub", "--scope", "x y"]) == 0
    shown = capsys.readouterr()
    assert shown.err == f"Open this page to log in:\n\n  {URL}\n\n"
    assert shown.out == "logged in to hub; it offers 2 tools: a, b\n"
    assert daemon.asked == [("login", {"server": "hub", "scope": "x y", "device": False, "seconds": 600.0})]


def test_a_code_is_printed_with_its_page(control: Controls, capsys: Captured) -> None:
    page = {"url": "https://as.example/device", "code": "AB-\x1b[2JCD"}
    control({"login": told(DEVICE_CODE, page, READY)})
    assert implementation("login").main(["hub", "--device", "--json"]) == 0
    shown = capsys.readouterr()
    assert "https://as.example/device" in shown.err
    assert "type this code there: AB-" in shown.err
    assert "\x1b" not in shown.err
    assert json.loads(shown.out) == READY


def test_no_browser_is_opened_for_what_is_no_web_page_nor_where_none_is_wanted(
    control: Controls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >"{opened}.part" && mv "{opened}.part" "{opened}"\n')
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", str(browser))
    daemon = control({"login": told(LINK, {"url": "file:///etc/passwd"}, READY)})
    assert implementation("login").main(["hub"]) == 0
    daemon.answers["login"] = told(LINK, {"url": URL}, READY)
    assert implementation("login").main(["hub", "--no-browser"]) == 0
    assert not opened.exists()


@cases("state", "reason", "status", "words")
def test_a_server_that_is_not_up_with_its_login_is_a_fault_unless_it_still_starts(
    state: str, reason: str, status: int, words: str, control: Controls, capsys: Captured
) -> None:
    control({"login": {**READY, "state": state, "reason": reason, "tools": []}})
    assert implementation("login").main(["hub"]) == status
    assert tuple(capsys.readouterr()) == ("logged in to hub\n", f"mcpd: hub is {words}\n")


def test_a_page_is_opened_only_where_it_can_be_seen() -> None:
    assert [has_display(each) for each in ({}, {"DISPLAY": ""}, {"DISPLAY": ":0"})] == [False, False, True]
