"""The instances of servers, as people are shown them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.status import STATUS, exit_status
from tests.unit.cli.daemons import diagnosed, down, server, status_of
from tests.unit.cli.test_status_view import NARROW, PIPE, shown

if TYPE_CHECKING:
    import pytest

    from tests.unit.cli.conftest import Controls


OF_SERVERS = {
    *("type", "epoch", "quarantined", "completed", "hidden", "listingError", "lists", "instances"),
    *("prompts", "resources", "templates"),
}


def instance(name: str, **changed: Any) -> Any:
    """An instance as `status` answers it, well: without the members that a server alone has."""
    own = {"name": name, "workspace": None, "session": None, "idleMs": 90_000, "differs": False}
    shared = {key: value for key, value in server().items() if key not in OF_SERVERS}
    return {**shared, **own, **{key: value for key, value in changed.items() if key not in OF_SERVERS}}


def divided(*instances: dict[str, Any], **changed: Any) -> Any:
    return server(**{"share": "session", "pid": None, "instances": list(instances), **changed})


PLAYWRIGHT = divided(instance("playwright#3", inFlight=1), instance("playwright#7", workspace="/srv/app"))


def test_an_instance_is_a_row_beneath_its_server() -> None:
    lines = shown({"playwright": PLAYWRIGHT, "git": server()}, PIPE).splitlines()
    assert lines[0].endswith("pid  idle")
    assert lines[1].startswith("playwright")
    assert "ready, 2 instances" in lines[1]
    assert lines[2].startswith("  playwright#3  ")
    assert lines[2].split()[-2:] == ["4711", "1m"]
    assert lines[3].startswith("  playwright#7 in /srv/app  ")
    assert lines[4].startswith("git")
    assert "idle" not in shown({"git": server()}, PIPE)


def test_on_a_small_terminal_the_name_is_whole_and_the_rest_short() -> None:
    text = shown({"playwright": PLAYWRIGHT}, NARROW)
    assert max(map(len, text.splitlines())) <= 80
    assert "ready (2)" in text
    assert "idle" not in text


def test_an_instance_that_is_not_well_is_explained_under_its_name_and_only_there() -> None:
    noise = {"count": 3, "first": "hello"}
    ill = instance("web#7", **down(attempt=2, nextRetryInMs=5000, stderr=["boom"], noise=noise))
    text = shown({"web": divided(instance("web#3"), ill, stderr=["boom"], noise=noise)}, PIPE)
    assert "web#7: backoff\n  exited with status 1\n  attempt 2, next retry in 5s\n  stderr| boom" in text
    assert text.count("boom") == text.count("lines on its stdout") == 1
    other = shown({"web": divided(instance("web#3", differs=True))}, PIPE)
    assert "web#3: ready\n  it lists something else than the other instances" in other


def test_the_exit_status_takes_instances_that_cannot_start_for_faults_and_none_for_none() -> None:
    def status(*instances: dict[str, Any], **changed: Any) -> int:
        return exit_status({"web": divided(*instances, **changed)})

    assert status(state="dormant") == 0
    assert status(instance("web#1"), instance("web#2", state="starting")) == 0
    assert status(instance("web#1"), instance("web#2", **down())) == 1


def test_what_helps_is_told_of_the_instance(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    ill = instance("web#7", **diagnosed(down("command-not-found", causeData={"command": "webb"})))
    control({"status": status_of({"web": divided(instance("web#3"), ill)})})
    assert STATUS.main([]) == 1
    said = capsys.readouterr().out
    assert said.count("What helps: ") == 1
    assert "There is no program webb on the PATH" in said
