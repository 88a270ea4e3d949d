"""`mcpd secret`, and imports whose secrets go to the keyring, without a Secret Service."""

import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from daemon.cli.table import implementation
from daemon.config.parse import load
from daemon.host.paths import secrets_dir
from daemon.secrets import keyring
from daemon.setup.clients.programs import Machine
from tests.printing import err_of, out_of
from tests.unit.cli.conftest import Captured, Users
from tests.unit.cli.users import Terminal, config_of
from tests.unit.setup.clients.test_found import digest

CANARY = "canary-7f3a"
SECRETS = ("bk-7Qm2xV9bT4Zr8Lw1", "nt-4hT8kQ2mZx9Vb1Rs", "ghx-9Kd3mP7wQ2vT5zXb")


@pytest.fixture(autouse=True)
def _no_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/none")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Gives commands a stdin that is no terminal."""
    return lambda content: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def configure(here: Machine, **servers: Any) -> None:
    config_of(here).parent.mkdir(parents=True, exist_ok=True)
    config_of(here).write_text(json.dumps({"mcpServers": servers}))


# --- mcpd secret ---------------------------------------------------------------------------------------------


def test_a_secret_is_set_from_stdin_listed_with_its_servers_and_removed(
    user: Users, typed: Callable[[bytes], None], capsys: Captured
) -> None:
    here = user()
    assert "`mcpd secret set NAME`" in out_of(capsys, implementation("secret").main([]))
    configure(
        here,
        one={"command": "a", "env": {"T": "${keyring:TOKEN}"}},
        two={"url": "https://x.example", "headers": {"A": "Bearer ${keyring:TOKEN} $${keyring:LITERAL}"}},
        three={"command": "a", "args": ["${keyring:MISSING}"]},
    )
    file = secrets_dir(os.environ) / "TOKEN"
    typed(f"{CANARY}\n".encode())
    said = out_of(capsys, implementation("secret").main(["set", "TOKEN"]))
    assert f"TOKEN is kept in {file}" in said
    assert "`mcpd restart one`" in said
    assert "`mcpd restart two`" in said
    assert "three" not in said
    assert file.read_text() == CANARY
    typed(b"x")
    assert implementation("secret").main(["set", "OTHER"]) == 0
    typed(f"{CANARY}\n\n".encode())
    assert f"TOKEN is kept in {file}" in out_of(capsys, implementation("secret").main(["set", "TOKEN"]))
    assert file.read_text() == f"{CANARY}\n"

    assert out_of(capsys, implementation("secret").main(["list"])).splitlines() == [
        "MISSING: not there; three",
        f"OTHER: {file.with_name('OTHER')}; not used",
        f"TOKEN: {file}; one, two",
    ]
    assert json.loads(out_of(capsys, implementation("secret").main(["list", "--json"])))["secrets"] == [
        {"name": "MISSING", "where": None, "servers": ["three"]},
        {"name": "OTHER", "where": str(file.with_name("OTHER")), "servers": []},
        {"name": "TOKEN", "where": str(file), "servers": ["one", "two"]},
    ]

    assert implementation("secret").main(["remove", "OTHER"]) == 0
    assert implementation("secret").main(["remove", "TOKEN"]) == 1
    assert "one, two cannot start without TOKEN: --yes removes it" in capsys.readouterr().err
    assert file.exists()
    assert implementation("secret").main(["remove", "TOKEN", "--yes"]) == 0
    assert "one still refers to it" in capsys.readouterr().out
    assert implementation("secret").main(["remove", "TOKEN", "--yes"]) == 1
    assert "there is no secret TOKEN" in capsys.readouterr().err
    assert keyring.names(os.environ) == {}


def test_what_is_no_secret_is_refused_and_not_shown(
    user: Users, typed: Callable[[bytes], None], capsys: Captured
) -> None:
    user()
    word = CANARY.encode()
    for content in (b"", b"\n", word + b"\0", b"\xff" + word, word * 900_000, b"y" * 64 * 1024 + b"\ny"):
        typed(content)
        assert implementation("secret").main(["set", "TOKEN"]) == 1
        out, err = capsys.readouterr()
        assert "the value of TOKEN must be text" in err
        assert CANARY not in out + err
    assert not secrets_dir(os.environ).exists()
    # The longest may end with a newline.
    typed(b"x" * 64 * 1024 + b"\n")
    assert implementation("secret").main(["set", "TOKEN"]) == 0
    assert keyring.read("TOKEN", os.environ) == "x" * 64 * 1024


def test_a_name_that_leads_elsewhere_is_refused(
    user: Users, typed: Callable[[bytes], None], capsys: Captured
) -> None:
    here = user()
    before = digest(here.home)
    typed(CANARY.encode())
    for name in ("../TOKEN", "a/b", ".x", "a" * 129):
        for words in (["set", name], ["remove", name, "--yes"]):
            assert "cannot be the name of a secret" in err_of(capsys, implementation("secret").main(words), 1)
    # Nobody is asked for a value that cannot be kept.
    assert sys.stdin.read() == CANARY
    assert digest(here.home) == before


def test_a_command_that_says_too_little_or_too_much_is_refused_and_does_not_repeat_a_value(
    user: Users, capsys: Captured
) -> None:
    user()
    for line in ("set", "remove", "list TOKEN", f"set TOKEN {CANARY}", f"set TOKEN = {CANARY}"):
        with pytest.raises(SystemExit, match="2"):
            implementation("secret").main(line.split())
        err = capsys.readouterr().err
        assert ("`mcpd secret set NAME <FILE`" in err, CANARY in err) == (True, False)


def test_a_faulty_configuration_says_so(user: Users, capsys: Captured) -> None:
    here = user()
    configure(here)
    config_of(here).write_text("{")
    assert "nothing was changed" in err_of(capsys, implementation("secret").main(["list"]), 78)


# --- import --------------------------------------------------------------------------------------------------


def test_imported_secrets_go_to_the_keyring_and_the_servers_are_known_again(
    user: Users, capsys: Captured
) -> None:
    here = user("claude-code")
    out = out_of(capsys, implementation("import").main(["--write", "--yes", "--keyring"]))
    assert "added 6 servers to ~/.config/mcpd/mcpd.json, 2 secrets to the keyring" in out
    assert "BRAVE_SEARCH__BRAVE_API_KEY" in out.split("added 6 servers")[0]
    assert not [secret for secret in SECRETS if secret in out]
    brave = load(config_of(here), {"HOME": str(here.home)}).mcp_servers["brave-search"]
    assert brave.late == ("keyring:BRAVE_SEARCH__BRAVE_API_KEY",)
    assert keyring.read("BRAVE_SEARCH__BRAVE_API_KEY", os.environ) == SECRETS[0]
    assert not config_of(here).with_name("env").exists()
    assert not [secret for secret in SECRETS if secret in config_of(here).read_text()]
    # The values, not the references, tell which servers mcpd has.
    written = config_of(here).read_bytes()
    for more in ([], ["--keyring"]):
        assert "added" not in out_of(capsys, implementation("import").main(["--write", "--yes", *more]))
        assert config_of(here).read_bytes() == written
    assert "brave-search" in out_of(capsys, implementation("install").main(["claude-code"]))
    assert SECRETS[0] not in (here.home / ".claude.json").read_text()


def test_an_import_that_cannot_keep_its_secrets_changes_nothing(
    user: Users, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = user("claude-code")
    write, names = keyring.write, list[str]()

    def second_fails(name: str, value: str, environ: Any) -> str:
        names.append(name)
        if len(names) == 2:
            raise keyring.SecretTrouble("no space left")
        return write(name, value, environ)

    monkeypatch.setattr(keyring, "write", second_fails)
    assert implementation("import").main(["--write", "--yes", "--keyring"]) == 1
    assert "no space left" in capsys.readouterr().err
    assert len(names) == 2
    assert keyring.names(os.environ) == {}
    assert not config_of(here).exists()


def test_secrets_are_taken_back_if_the_configuration_cannot_be_written(user: Users, capsys: Captured) -> None:
    here = user("claude-code")
    configure(here)
    config_of(here).chmod(0o400)
    keyring.write("NOTION__TOKEN", SECRETS[1], os.environ)
    assert "read-only" in err_of(capsys, implementation("import").main(["--write", "--yes", "--keyring"]), 1)
    # Somebody set this one, and the import would have used it.
    assert [*keyring.names(os.environ)] == ["NOTION__TOKEN"]


def test_at_a_terminal_the_other_place_is_named(
    user: Users, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = user("claude-code")
    offer = "with --keyring to your keyring"
    assert offer not in out_of(capsys, implementation("import").main([]))
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert offer in out_of(capsys, implementation("import").main(["--write"]), 1)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert offer not in out_of(capsys, implementation("import").main(["--write", "--keyring"]))
    assert "${keyring:" in config_of(here).read_text()


def test_where_no_late_reference_can_stand_the_secret_goes_to_the_file(user: Users, capsys: Captured) -> None:
    here = user()
    client = here.home / ".cursor" / "mcp.json"
    client.parent.mkdir()
    logins = {"oauth": {"clientId": "c", "clientSecret": SECRETS[0]}}
    client.write_text(json.dumps({"mcpServers": {"x": {"url": "https://x.example/mcp", **logins}}}))
    assert implementation("import").main(["--write", "--yes", "--keyring", "--from", "cursor"]) == 0
    assert "1 secret to ~/.config/mcpd/env" in capsys.readouterr().out
    assert SECRETS[0] in config_of(here).with_name("env").read_text()
    assert keyring.names(os.environ) == {}
    assert load(config_of(here), {"HOME": str(here.home)}).mcp_servers["x"].oauth is not None
