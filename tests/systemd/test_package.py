"""The Debian package: what a purge leaves, and what an installation on a running system does."""

from __future__ import annotations

import grp
import json

from tests.systemd.machine import CONFIG, FRONT, STATE, UNIT, Service, ended, run, scripted, watched

PACKAGE = "/usr/lib/mcpd-tests/mcpd.deb"
OWN = "mcpd-tests"
"""What the tests themselves have brought has this in its name."""
PLACES = ("/etc", "/usr", "/var", "/run")


def left() -> list[str]:
    """Everything on this machine that has mcpd in its name."""
    words = [*PLACES, "-xdev", "-name", "*mcpd*", "-not", "-path", f"*{OWN}*"]
    return run("find", *words, "-not", "-path", "/var/lib/systemd/*").stdout.splitlines()


def test_a_purge_leaves_nothing_and_an_installation_serves_at_once(service: Service) -> None:
    service.ready()
    assert STATE.exists()
    with watched(service.processes()) as held:
        run("dpkg", "--purge", "mcpd")
        ended(held)
    assert left() == []
    assert "mcpd-clients" not in {group.gr_name for group in grp.getgrall()}
    assert service.show("LoadState") == "not-found"

    run("dpkg", "-i", PACKAGE)
    # The purge took the test's users out of the group.
    run("systemd-sysusers")
    assert service.ctl("is-active", "mcpd.socket", UNIT, check=False).stdout.split() == ["active", "active"], (
        service.said()
    )
    assert service.ctl("is-enabled", "mcpd.socket", UNIT).stdout.split() == ["enabled", "enabled"]
    assert FRONT.exists()
    assert run("/usr/bin/mcpd", "check", str(CONFIG)).returncode == 0
    CONFIG.write_text(json.dumps({"mcpServers": {"one": scripted()}}))
    service.ctl("reload", UNIT)
    service.ready("one")
    assert "hello" in run("/usr/bin/mcpd", "call", "one/echo", "text=hello").stdout


def test_an_upgrade_keeps_the_configuration_and_starts_the_new_daemon(service: Service) -> None:
    config, pid = CONFIG.read_text(), service.pid
    run("dpkg", "-i", PACKAGE)
    assert CONFIG.read_text() == config
    assert service.pid not in {0, pid}
    service.ready()


def test_what_an_administrator_has_disabled_stays_so_over_an_upgrade(service: Service) -> None:
    service.ctl("disable", "--now", UNIT, "mcpd.socket")
    try:
        run("dpkg", "-i", PACKAGE)
        assert service.ctl("is-enabled", UNIT, check=False).stdout.strip() == "disabled"
        assert service.ctl("is-active", UNIT, check=False).stdout.strip() == "inactive"
    finally:
        service.ctl("enable", UNIT)
