"""What killed daemons have left: real processes, found by the doctor and ended when it is told to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from daemon.cli.checkup.gathering import gather
from daemon.cli.checkup.leftovers import check
from daemon.cli.checkup.scene import Level
from tests.cli.checkup.scenes import levels, only
from tests.processes.dying import DyingDaemon

if TYPE_CHECKING:
    import pytest

    from tests.cli.checkup.scenes import House

POLITE = ["polite", "marked"]


def test_nothing_is_left_where_no_daemon_was_killed(house: House) -> None:
    assert levels(check(house.look())) == ["ok"]
    with DyingDaemon(house.state, {"a": POLITE}):
        assert levels(check(house.look())) == ["ok"]


def test_what_is_left_is_told_by_server_with_its_age_and_its_size_and_stays(house: House) -> None:
    with DyingDaemon(house.state, {"a": POLITE}) as daemon:
        daemon.kill()
        said = only(check(house.look()), Level.WARNING)
        assert f"server a was left running by a killed daemon (pid {daemon.pid}): " in said
        assert f": pid {daemon.all[0]} (python" in said
        assert " old, " in said
        assert "--end-leftovers" in said
        assert daemon.alive == daemon.all


def test_what_is_left_is_ended_if_that_is_asked_for(house: House) -> None:
    with DyingDaemon(house.state, {"a": POLITE, "b": POLITE}) as daemon:
        daemon.kill()
        scene = gather(None, house.environ, end_leftovers=True)
        found = list(check(scene))
        assert levels(found) == ["note", "note"]
        assert f"Ended server b, pid {daemon.pids['b'][0]}, " in found[1].what
        assert not daemon.alive
        assert levels(check(scene)) == ["ok"]


def test_the_directory_can_be_named(house: House) -> None:
    with DyingDaemon(house.root / "another", {"a": POLITE}) as daemon:
        daemon.kill()
        assert levels(check(house.look())) == ["ok"]
        assert "server a" in only(
            check(gather(None, house.environ, state=house.root / "another")), Level.WARNING
        )


def test_a_running_daemon_says_where_it_is(house: House) -> None:
    other = house.root / "another"
    with DyingDaemon(other, {"a": POLITE}) as daemon, house.daemon(stateDirectory=str(other)):
        daemon.kill()
        assert "server a" in only(check(house.look()), Level.WARNING)


def test_another_user_is_sent_to_the_daemons(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with DyingDaemon(house.state, {"a": POLITE}) as daemon:
        daemon.kill()
        owner = house.state.stat().st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        said = only(check(house.look()), Level.WARNING)
        assert f"known to uid {owner} alone" in said
        assert daemon.alive == daemon.all
