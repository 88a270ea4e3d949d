"""S9: names are names, never paths, and none that cannot be shown is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.config.names import SERVER_NAME
from daemon.safety.escape import visible
from tests.security.hostile import BAD_NAMES, NAMES

if TYPE_CHECKING:
    from tests.security.conftest import Watched


def test_no_server_is_called_like_a_path_or_like_nothing_that_can_be_read() -> None:
    bad = (
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a\x00b",
        "A",
        "-a",
        "_a",
        "a" * 65,
        "a\u202eb",
        "a b",
        "ä",
        "a\n",
        "con:",
    )
    assert not [name for name in bad if SERVER_NAME.fullmatch(name)]
    assert all(SERVER_NAME.fullmatch(name) for name in ("a", "con", "git-hub_2", "0", "a" * 64))


@pytest.mark.e2e
def test_a_tool_may_be_called_like_a_path_and_is_called_by_it(hostile: Watched) -> None:
    with hostile.client() as client:
        described = client.get("odd")["tools"]
        assert list(described) == NAMES
        for name in NAMES:
            assert not client.run("odd", name).get("isError"), name


@pytest.mark.e2e
def test_a_name_that_cannot_be_shown_is_quarantined_and_shown_spelt_out(hostile: Watched) -> None:
    quarantined = hostile.ask("status")["servers"]["odd"]["quarantined"]
    assert len(quarantined) == len(BAD_NAMES)
    for shown, why in quarantined.items():
        assert visible(shown) == shown
        assert "printable" in why or "hidden characters" in why
    with hostile.client() as client:
        for name in BAD_NAMES:
            assert client.run("odd", name)["isError"]


@pytest.mark.e2e
def test_nothing_on_disk_is_called_after_a_tool(hostile: Watched) -> None:
    found = {path.name for path in hostile.directory.rglob("*")}
    assert not found & {"passwd", "CON", "con.txt", "plain", "-rf"}
    assert not [name for name in found if name.startswith("xxx")]
