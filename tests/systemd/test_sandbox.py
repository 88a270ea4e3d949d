"""Sandboxes under the system's unit: refused as it is installed, made with the drop-in of the remedy."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.systemd.machine import CONTROL, DROP_INS, STATE, UNIT, run, scripted
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.systemd.machine import Service

Json = dict[str, Any]

DROP_IN = "/usr/share/mcpd/sandbox.conf"

LOOK = """
import json, os, sys
home = os.environ["HOME"]
def may(path, mode):
    try:
        os.close(os.open(path, mode, 0o600))
    except OSError as error:
        return type(error).__name__
    return "yes"
with open(os.environ["MCPD_DATA_DIR"] + "/seen", "w") as file:
    json.dump({
        "cache": may(home + "/.npm/probe", os.O_CREAT | os.O_WRONLY),
        "home": sorted(each for each in os.listdir(home) if not each.startswith(".")),
        "configuration": os.path.exists("/etc/mcpd/mcpd.json"),
        "control": os.path.exists(sys.argv[1]),
        "processes": len([each for each in os.listdir("/proc") if each.isdigit()]) < 5,
        "tunables": may("/proc/sys/kernel/hostname", os.O_WRONLY),
    }, file)
sys.stdin.read()
"""
MODES = ("home", "strict")


def boxed(mode: str) -> Json:
    """A scripted server in a sandbox."""
    return {**scripted(), "sandbox": mode}


def failed(service: Service, name: str) -> Json:
    """A server's status once it has a cause of failure."""
    found = service.servers()[name]
    return found if found.get("cause") else {}


def text_of(file: Path) -> str:
    """A file's text; empty while it is not there."""
    return file.read_text() if file.exists() else ""


def relax(service: Service) -> None:
    """Do what the remedy says, but in /run, for one test."""
    DROP_INS.mkdir(parents=True, exist_ok=True)
    run("install", "-m", "644", DROP_IN, DROP_INS / "sandbox.conf")
    service.ctl("daemon-reload")
    service.ctl("restart", UNIT)


def test_the_unit_as_installed_starts_no_sandboxed_server_and_the_remedy_names_the_drop_in(
    stopped: Service,
) -> None:
    stopped.configure({"plain": scripted(), **{mode: boxed(mode) for mode in MODES}})
    stopped.ctl("restart", UNIT)
    stopped.ready("plain")
    for mode in MODES:
        found = eventually(partial(failed, stopped, mode), stopped.said)
        assert found["cause"] == "sandbox-unavailable"
        assert f"install -D -m 644 {DROP_IN} /etc/systemd/system/mcpd.service.d/sandbox.conf" in json.dumps(
            found
        )


def test_with_the_drop_in_servers_are_ready_in_both_modes_and_answer(stopped: Service) -> None:
    stopped.configure({mode: boxed(mode) for mode in MODES})
    relax(stopped)
    stopped.ready(*MODES)
    for mode in MODES:
        assert "inside" in run("/usr/bin/mcpd", "call", f"{mode}/echo", "text=inside").stdout


def test_a_sandboxed_server_has_caches_and_data_of_its_own_and_nothing_of_the_daemons(stopped: Service) -> None:
    own = {mode: STATE / "servers" / mode for mode in MODES}
    for each in own.values():
        (each / "data" / "seen").unlink(missing_ok=True)
    look = {"command": "/usr/bin/python3", "args": ["-c", LOOK, str(CONTROL)]}
    stopped.configure({mode: {**look, "sandbox": mode} for mode in MODES})
    relax(stopped)
    for mode in MODES:
        file = own[mode] / "data" / "seen"
        text = eventually(partial(text_of, file), stopped.said)
        seen = json.loads(text)
        outside = {each.name for each in STATE.iterdir()} - {"servers"}
        assert outside
        assert not outside & set(seen.pop("home"))
        assert seen == {
            # Nothing comes into a cache without a network.
            "cache": "yes" if mode == "home" else "FileNotFoundError",
            "configuration": False,
            "control": False,
            "processes": True,
            "tunables": "PermissionError",
        }
        assert any((own[mode] / "caches").glob("*/.npm/probe")) == (mode == "home")
