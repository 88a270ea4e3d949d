"""What the service's sandbox and the daemon leave of the world to a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.systemd.machine import STATE, ended, scripted, watched
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.systemd.machine import Service

Json = dict[str, Any]

SECRET = "canary-7d1f"

LOOK = """
import json, os, sys
def may(path, mode):
    try:
        os.close(os.open(path, mode, 0o600))
    except OSError as error:
        return type(error).__name__
    return "yes"
open(sys.argv[1], "w").write(json.dumps({
    "home": may(os.environ["HOME"] + "/probe", os.O_CREAT | os.O_WRONLY),
    "etc": may("/etc/probe", os.O_CREAT | os.O_WRONLY),
    "root": may("/root/.bashrc", os.O_RDONLY),
    "daemon": may(f"/proc/{os.getppid()}/environ", os.O_RDONLY),
    "systemd": os.path.exists("/proc/1/cmdline"),
    "cpus": os.cpu_count(),
    "groups": os.getgroups(),
    "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")],
}) + "\\n")
sys.stdin.read()
"""


def record(stopped: Service, *unit: str, **server: Any) -> list[Json]:
    """What a scripted server recorded until it was ready."""
    (STATE / "record").unlink(missing_ok=True)
    stopped.begin({"one": scripted(record="/var/lib/mcpd/record") | server}, *unit)
    return [json.loads(line) for line in (STATE / "record").read_text().splitlines()]


def test_a_server_gets_harmless_variables_and_three_descriptors_and_nothing_of_systemds(
    stopped: Service,
) -> None:
    (credential := STATE.parents[1] / "credential").write_text(SECRET)
    unit = [f"LoadCredential=token:{credential}", "Environment=LOUD=1"]
    begun = record(stopped, *unit, env={"TOKEN": "${credential:token}"})[0]
    credential.unlink()
    assert begun["event"] == "start"
    # LC_CTYPE is the interpreter's own (PEP 538); SHELL depends on the release of systemd.
    assert begun["env"].keys() - {"LC_CTYPE", "SHELL"} == {"HOME", "LOGNAME", "PATH", "USER", "TOKEN"}
    assert begun["env"]["HOME"] == "/var/lib/mcpd"
    assert begun["env"]["TOKEN"] == SECRET
    assert begun["fds"] == [0, 1, 2]
    assert begun["blocked"] == []
    assert SECRET not in stopped.said() + json.dumps(stopped.ask("status"))


def test_a_server_has_a_home_and_nothing_else_to_write_to(stopped: Service) -> None:
    home = STATE / "seen"
    home.unlink(missing_ok=True)
    stopped.configure({"look": {"command": "/usr/bin/python3", "args": ["-c", LOOK, "/var/lib/mcpd/seen"]}})
    stopped.ctl("restart", "mcpd.service")
    assert stopped.heard("pid ")
    seen = json.loads(eventually(lambda: home.read_text() if home.exists() else "", stopped.said))
    assert seen["home"] == "yes"
    assert seen["etc"] == "OSError"
    assert seen["root"] == "PermissionError"
    assert not seen["systemd"]
    assert seen["capabilities"] == ["0000000000000000"]


def test_a_tree_that_left_its_group_ends_with_its_server_inside_the_sandbox_too(stopped: Service) -> None:
    stopped.begin({"tree": scripted(spawn=[{"kind": "setsid"}, {"kind": "daemon"}]), "one": scripted()})
    neighbour = stopped.servers()["one"]["pid"]
    old = stopped.children() - {neighbour}
    assert len(old) >= 3
    with watched(old) as held:
        stopped.ask("restart", server="tree")
        ended(held)
    assert stopped.ready()["one"]["pid"] == neighbour
