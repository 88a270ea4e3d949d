"""From the boot to the stop: readiness, activation, reload, a faulty configuration, exposure."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tests.systemd.machine import (
    AS_INSTALLED,
    CONFIG,
    CONTROL,
    FRONT,
    LISTED,
    UNIT,
    Service,
    greet,
    run,
    scripted,
)
from tests.waiting import eventually

STARTS = 40
"""Twice as many as systemd allows in two seconds by default."""

QUICK = [
    *("ExecStart=", "ExecStart=/bin/sh -c 'exit 78'", "DynamicUser=no", "ProtectSystem=no", "ProtectHome=no"),
    *("PrivateTmp=no", "PrivateDevices=no", "PrivateMounts=no", "ProtectProc=default", "ProtectHostname=no"),
    *("ProtectKernelTunables=no", "ProtectKernelModules=no", "ProtectKernelLogs=no", "ProtectControlGroups=no"),
    *("ProtectClock=no", "SystemCallFilter=", "SystemCallArchitectures=", "RestrictAddressFamilies="),
    *("RestrictNamespaces=no", "RestrictRealtime=no", "RestrictSUIDSGID=no", "LockPersonality=no"),
]
"""A start that fails as quickly as ours may on a quicker machine: the sandbox takes time to set up."""

EXPOSURE = 15
"""Ten times the figure of `systemd-analyze security` that the unit must not exceed."""


def test_after_the_boot_socket_and_service_are_active_and_nothing_has_failed() -> None:
    service = Service()
    assert service.ctl("is-active", "mcpd.socket", UNIT).stdout.split() == ["active", "active"]
    assert service.show("NRestarts") == "0"
    assert service.show("StatusText") == "serving"
    failed = service.ctl("list-units", "--failed", "--plain", "--no-legend").stdout
    assert not failed
    assert service.ready()


def test_a_start_returns_when_both_sockets_answer_whatever_the_servers_do(stopped: Service) -> None:
    stopped.configure({"mute": scripted(on={"initialize": {"never": True}})})
    stopped.ctl("restart", UNIT)
    assert stopped.servers()["mute"]["state"] == "starting"
    with stopped.client() as client:
        assert greet(client)["serverInfo"]["name"] == "mcpd"


def test_the_first_connection_starts_the_service(stopped: Service) -> None:
    assert stopped.show("ActiveState") == "inactive"
    assert FRONT.exists()
    with stopped.client() as client:
        assert greet(client)["serverInfo"]["name"] == "mcpd"
    assert stopped.show("ActiveState") == "active"


def test_a_stop_leaves_the_front_and_nothing_else(stopped: Service) -> None:
    stopped.begin({"tree": scripted(spawn=[{"kind": "setsid"}, {"kind": "daemon"}])})
    assert len(stopped.processes()) >= 4
    stopped.ctl("stop", UNIT)
    assert not stopped.processes()
    assert (stopped.show("Result"), stopped.show("ExecMainStatus")) == ("success", "0")
    assert not CONTROL.exists()
    assert stopped.show("ActiveState", "mcpd.socket") == "active"


def test_a_reload_adds_a_server_and_leaves_the_others_alone(service: Service) -> None:
    pids = service.pid, service.ready()["one"]["pid"]
    config = json.loads(CONFIG.read_text().replace("},\n}", "}\n}").replace("},\n  }", "}\n  }"))
    config["mcpServers"]["two"] = scripted()
    CONFIG.write_text(json.dumps(config))
    service.ctl("reload", UNIT)
    servers = service.ready("one", "two")
    assert (service.pid, servers["one"]["pid"]) == pids


def test_a_reload_of_a_faulty_file_fails_names_the_fault_and_changes_nothing(service: Service) -> None:
    pid = service.pid
    CONFIG.write_text(AS_INSTALLED.read_text().replace('"listen"', '"lisen"'))
    assert service.ctl("reload", UNIT, check=False).returncode != 0
    assert "lisen" in service.heard("nothing was changed")
    assert service.pid == pid
    assert service.show("ActiveState") == "active"
    with service.client() as client:
        assert not client.run("one", "echo", text="still here").get("isError")


def test_a_faulty_configuration_ends_in_78_and_is_not_started_again(stopped: Service) -> None:
    CONFIG.write_text("{")
    stopped.ctl("restart", UNIT, check=False)
    found = [stopped.show(key) for key in ("ActiveState", "Result", "ExecMainStatus", "NRestarts")]
    assert found == ["failed", "exit-code", "78", "0"]
    assert str(CONFIG) in stopped.heard("mcpd:")


def test_a_client_of_a_faulty_configuration_is_hung_up_on_and_a_mended_one_serves_the_next(
    stopped: Service,
) -> None:
    CONFIG.write_text("{")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(FRONT))
        assert client.recv(1) == b""
    CONFIG.write_text(json.dumps({"mcpServers": {"one": scripted()}, "listen": {"uids": [LISTED]}}))
    assert stopped.show("ActiveState", "mcpd.socket") == "active"
    with stopped.client() as again:
        assert greet(again)["serverInfo"]["name"] == "mcpd"


def test_a_client_waits_for_a_service_that_fails_at_once_and_is_served_when_it_is_mended(
    stopped: Service,
) -> None:
    """By default systemd gives up a socket (`trigger-limit-hit`) that starts its service 20 times in 2 s."""
    stopped.configure({"one": scripted()}, *QUICK)
    with stopped.client() as client:
        eventually(lambda: stopped.said().count("status=78") > STARTS, stopped.said)
        assert stopped.show("Result", "mcpd.socket") == "success"
        stopped.restore()
        assert greet(client)["serverInfo"]["name"] == "mcpd"


def test_the_exposure_of_the_installed_unit_is_low() -> None:
    done = run("systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE}", "--no-pager", UNIT)
    assert "Overall exposure level" in done.stdout


def test_the_control_groups_of_the_unit_are_where_the_tests_look_for_them(service: Service) -> None:
    """Otherwise every test that finds no process left would pass on nothing."""
    assert service.pid in service.processes()
    assert "mcpd" in Path(f"/proc/{service.pid}/cmdline").read_text()
