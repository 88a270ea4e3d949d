"""Open files: what a process may have, against what the configuration asks for."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from daemon.cli.checkup.limits import CHILD, OWN, REMOTE, check
from daemon.cli.checkup.scene import Level
from tests.cli.checkup.scenes import levels, only, process

if TYPE_CHECKING:
    from tests.cli.checkup.scenes import House

CLIENTS = 100
SERVERS = {
    "a": {"command": "a"},
    "b": {"url": "http://127.0.0.1/"},
    "off": {"command": "c", "enabled": False},
}
NEEDED = OWN + CHILD + REMOTE


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        (NEEDED + CLIENTS, ["ok"]),
        (NEEDED + CLIENTS - 1, ["note"]),
        (NEEDED + 64, ["note"]),
        (NEEDED + 63, ["warning"]),
    ],
)
def test_room_for_few_clients_is_a_warning(house: House, allowed: int, said: list[str]) -> None:
    house.write({"mcpServers": SERVERS, "limits": {"connections": CLIENTS}})
    with process(house.root) as pid, house.daemon(pid=pid):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (allowed, 4096))
        assert levels(check(house.look())) == said


def test_what_to_write_is_said_and_that_the_hard_limit_is_lower(house: House) -> None:
    with process(house.root) as pid, house.daemon(pid=pid):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (70, 128))
        told = only(check(house.look()), Level.WARNING)
    assert "LimitNOFILE=2048" in told
    assert "hard limit is 128" in told
    assert "leaves room for 6 clients of the 1024" in told


def test_without_a_daemon_this_shells_limit_counts(house: House) -> None:
    assert "this shell may have" in next(check(house.look())).what


def test_a_faulty_configuration_asks_for_nothing(house: House) -> None:
    house.write("{")
    assert not list(check(house.look()))
