"""The units of this version, fitted to a machine, are known again later."""

from __future__ import annotations

from daemon.setup.running.service import DROP_IN, is_untouched, path_of, wanted_files
from tests.unit.cli.daemons import ROOT

STRANGE = '/opt/a b/100%/$HOME/"q"\\/mcpd'


def test_the_shipped_units_and_a_drop_in_are_written_and_known_again() -> None:
    found = wanted_files("/usr/bin/mcpd", "/usr/bin")
    assert set(found) == {"mcpd.service", "mcpd.socket", "mcpd-http.socket", DROP_IN}
    assert all(is_untouched(content) for content in found.values())
    assert not any(is_untouched(content + b"# mine\n") for content in found.values())
    assert found["mcpd.service"].endswith((ROOT / "systemd" / "user" / "mcpd.service").read_bytes())
    # What is kept for servers never becomes the daemon's environment.
    assert not any(b"\nEnvironmentFile=" in content for content in found.values())


def test_a_path_is_read_back_however_strange() -> None:
    drop_in = wanted_files(STRANGE, STRANGE)[DROP_IN]
    assert path_of(drop_in) == STRANGE
    assert b'ExecStart="/opt/a b/100%%/$HOME/\\"q\\"\\\\/mcpd" run\n' in drop_in
    assert not path_of(b"[Service]\n")
