"""`mcpd logout`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("logout").main

GONE: dict[str, Any] = {"server": "hub", "state": "needs_auth", "existed": True, "revoked": True, "problem": ""}


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (GONE, 0, "logged out of hub: the login is forgotten here, and ended at its authorization server"),
        ({**GONE, "existed": False, "revoked": False}, 0, "there was no login at hub"),
        (
            {**GONE, "revoked": False, "problem": "it is away"},
            1,
            "not ended at its authorization server: it is away.",
        ),
    ],
)
def test_what_became_of_the_login_is_said(
    answer: dict[str, Any], status: int, words: str, control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = control({"logout": answer})
    assert main(["hub"]) == status
    assert words in capsys.readouterr().out
    assert daemon.asked == [("logout", {"server": "hub"})]
