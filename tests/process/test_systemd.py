"""The shipped units: what their text must say, and, where systemd exists, what it says of them itself."""

import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from daemon.config.listen import DEFAULT_HTTP_ADDRESS
from tests.unit.cases import cases
from tests.waiting import run_to_end

ROOT = Path(__file__).parent.parent.parent
UNITS = ROOT / "systemd"
SYSTEM, USER = UNITS / "mcpd.service", UNITS / "user" / "mcpd.service"
SERVICES = [SYSTEM, USER]
PAIRS = [UNITS, UNITS / "user"]
NEWER_THAN_252 = {"RestartSteps", "RestartMaxDelaySec", "DelegateSubgroup"}
PULLING = ("Also", "Requires", "Wants", "Upholds", "Sockets")
# Ten times the figure of `systemd-analyze security`: 1.3 as shipped, on 252; other releases weigh differently.
EXPOSURE = 15

ANALYZE = shutil.which("systemd-analyze")


@pytest.fixture(scope="module", autouse=True)
def _say_what_is_left_out(request: pytest.FixtureRequest) -> None:
    """A machine without systemd runs fewer tests than CI does; that must not pass unseen."""
    terminal = request.config.pluginmanager.getplugin("terminalreporter")
    if ANALYZE is None and terminal is not None:
        terminal.write_line("")
        terminal.write_line("*** No systemd-analyze here: the units are tested as text only. ***")


def settings(unit: Path) -> dict[str, list[str]]:
    """Every value of every key, comments left out; no key of ours occurs in two sections."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", ";", "[")):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("unit", SERVICES, ids=name_of)
@cases("key", "value")
def test_a_service_is_supervised_as_measured(unit: Path, key: str, value: str) -> None:
    assert settings(unit)[key] == [value]


@pytest.mark.parametrize("unit", SERVICES, ids=name_of)
def test_a_service_delegates_what_limits_of_servers_need_and_can_write_its_own_groups_alone(unit: Path) -> None:
    assert settings(unit)["Delegate"] == ["cpu memory pids"]
    own = [f"-/sys/fs/cgroup/{place}system.slice/%n" for place in ("", "unified/")]
    is_systems = unit == UNITS / "mcpd.service"
    assert settings(unit)["ProtectControlGroups"] == (["yes"] if is_systems else [])
    assert settings(unit)["ReadWritePaths"] == ([" ".join(own)] if is_systems else [])


@pytest.mark.parametrize("unit", SERVICES, ids=name_of)
def test_a_service_has_no_key_that_252_does_not_know(unit: Path) -> None:
    assert not NEWER_THAN_252 & settings(unit).keys()
    assert "private" not in settings(unit)["ProtectControlGroups"]


@pytest.mark.parametrize("folder", PAIRS, ids=name_of)
def test_the_front_is_a_named_socket_outside_the_services_own_directory(folder: Path) -> None:
    """Systemd removes a RuntimeDirectory when the service stops; the socket has to outlive that."""
    socket = settings(folder / "mcpd.socket")
    assert socket["FileDescriptorName"] == ["front"]
    (path,) = socket["ListenStream"]
    runtime = settings(folder / "mcpd.service")["RuntimeDirectory"]
    assert not any(path.startswith((f"/run/{name}/", f"%t/{name}/")) for name in runtime)


def test_the_front_is_open_to_nobody_by_default() -> None:
    system = settings(UNITS / "mcpd.socket")
    assert system["SocketMode"] == ["0660"]
    assert settings(UNITS / "user" / "mcpd.socket")["SocketMode"] == ["0600"]
    groups = [
        line.split()[1] for line in (UNITS / "mcpd.sysusers").read_text().splitlines() if line.startswith("g ")
    ]
    assert system["SocketGroup"] == groups


@pytest.mark.parametrize("folder", PAIRS, ids=name_of)
def test_http_is_a_named_socket_of_the_same_service_on_loopback(folder: Path) -> None:
    found = settings(folder / "mcpd-http.socket")
    assert found["FileDescriptorName"] == ["http"]
    assert found["ListenStream"] == [DEFAULT_HTTP_ADDRESS]
    assert found["Service"] == ["mcpd.service"]
    assert (
        found["TriggerLimitIntervalSec"] == settings(folder / "mcpd.socket")["TriggerLimitIntervalSec"] == ["0"]
    )


@pytest.mark.parametrize("folder", PAIRS, ids=name_of)
def test_nobody_gets_http_who_has_not_asked_for_it(folder: Path) -> None:
    """And who has enabled it gets it by a restart of the service: systemd starts no socket of an active one."""
    service, front = settings(folder / "mcpd.service"), settings(folder / "mcpd.socket")
    named = [value for found in (service, front) for key in PULLING for value in found[key]]
    assert not any("mcpd-http.socket" in value for value in named)
    assert settings(folder / "mcpd-http.socket")["WantedBy"] == ["sockets.target mcpd.service"]


def test_peers_keep_their_uid() -> None:
    """PrivateUsers=yes shows every peer as 65534 in SO_PEERCRED."""
    assert settings(SYSTEM)["PrivateUsers"] == ["no"]


def test_no_secret_is_in_the_environment() -> None:
    """`systemctl show` prints Environment= to everyone: credentials are files."""
    names = {value.split("=", 1)[0] for unit in SERVICES for value in settings(unit)["Environment"]}
    assert names == {"HOME", "MCPD_DELEGATED", "PATH", "XDG_CACHE_HOME", "npm_config_cache", "UV_CACHE_DIR"}


if ANALYZE is not None:
    ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "SYSTEMD_COLORS": "0"}

    def installed(folder: Path, into: Path) -> list[Path]:
        """The units as systemd reads it, with a program that exists: verify refuses a missing ExecStart."""
        (program,) = {line.split()[0] for line in settings(folder / "mcpd.service")["ExecStart"]}
        copies = [into / "mcpd.service", into / "mcpd.socket", into / "mcpd-http.socket"]
        for copy in copies:
            copy.write_text((folder / copy.name).read_text().replace(program, "/bin/true"))
        return copies

    def analyze(*arguments: str | Path, runtime: Path) -> subprocess.CompletedProcess[str]:
        return run_to_end(
            [ANALYZE or "", *arguments],
            env=ENVIRONMENT | {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(runtime)},
        )

    @pytest.mark.parametrize(
        ("folder", "scope"), [(UNITS, "--system"), (UNITS / "user", "--user")], ids=["system", "user"]
    )
    def test_systemd_finds_nothing_to_say_about_the_units(folder: Path, scope: str, tmp_path: Path) -> None:
        done = analyze(scope, "verify", "--man=no", *installed(folder, tmp_path), runtime=tmp_path)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)

    def test_systemd_would_complain_about_a_key_it_does_not_know(tmp_path: Path) -> None:
        """The test above passes on silence: this is the proof that verify is not silent about everything."""
        service, *_ = installed(UNITS, tmp_path)
        service.write_text(service.read_text().replace("[Service]", "[Service]\nKilMode=mixed"))
        assert "KilMode" in analyze("verify", "--man=no", service, runtime=tmp_path).stderr

    @pytest.mark.parametrize(("without", "passes"), [("", True), ("CapabilityBoundingSet=\n", False)])
    def test_the_exposure_of_the_system_service_is_low(without: str, passes: bool, tmp_path: Path) -> None:
        service, *_ = installed(UNITS, tmp_path)
        service.write_text(service.read_text().replace(without, ""))
        done = analyze("security", "--offline=yes", f"--threshold={EXPOSURE}", service, runtime=tmp_path)
        assert (done.returncode == 0) is passes, done.stdout
