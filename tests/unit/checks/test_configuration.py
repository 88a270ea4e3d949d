"""The configuration: its faults, whether it is the one that counts, who can read and write it (real modes)."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from daemon.checks.addresses import SOON_DAYS, certificate
from daemon.checks.advice import warnings
from daemon.checks.configuration import check, secrets
from daemon.checks.configuration import clients as check_clients
from daemon.checks.findings import Level
from daemon.config.listen import Tls
from daemon.config.parse import load_with_notes
from daemon.surfaces.table import SURFACES
from tests.unit.cases import cases
from tests.unit.checks.scenes import NOBODY, House, levels, only, process

WORD = "hunter2-hunter2"
IN_ENV = {"command": "x", "env": {"API_KEY": WORD}}


def test_a_sound_one_is_counted_what_is_odd_is_noted_and_one_that_is_not_there_is_a_fault(house: House) -> None:
    assert "`mcpd add` adds one" in only(check(house.look()), Level.NOTE)
    rules = {"sandbox": {"network": {"allowLocalBinding": True}}}
    for server, said in (
        ({"command": "git"}, None),
        ({"command": "x", "disabled": True}, 'git.disabled: understood as "enabled": false'),
        ({"command": "x", **rules}, "git.sandbox.network.allowLocalBinding: no effect"),
    ):
        house.servers(git=server, other={"command": "x", **rules})
        noted = [each.what for each in check(house.look()) if each.level is Level.NOTE]
        assert len(noted) == 1 + ("disabled" in server), noted
        assert said is None or f": $.mcpServers.{said}" in noted[0]
    house.servers(git={"command": "git"})
    with house.daemon(startedAt=9e9) as status:
        status["unresolved"] = ["git/git_lgo"]
        found = list(check(house.look()))
    assert (levels(found)[0], "git/git_lgo" in only(found, Level.WARNING)) == ("ok", True)
    assert f"{house.config}: servers: 1, categories: 0" in found[0].what
    house.config.unlink()
    assert "there is no such file" in only(check(house.look()), Level.FAULT)
    assert not list(secrets(house.look()))


def test_servers_that_the_default_sandbox_leaves_alone_are_noted_once(house: House) -> None:
    servers: dict[str, Any] = {
        "web": {"url": "https://h.invalid/"},
        "box": {"command": "docker", "args": ["run", "-i", "--rm", "x"]},
        "own": {"command": "x"},
        "free": {"command": "x", "sandbox": "off"},
        "gone": {"url": "https://g.invalid/", "enabled": False},
    }
    house.write({"mcpServers": servers, "sandbox": "home"})
    said = only(check(house.look()), Level.NOTE)
    assert "$.sandbox: containers and servers that mcpd does not start are not in its sandbox: web, box" in said
    assert not any(name in said for name in ("free", "gone"))
    for default in ("off", None):
        house.write({"mcpServers": servers} | ({"sandbox": default} if default else {}))
        assert levels(check(house.look())) == ["ok"]


@pytest.mark.parametrize(("content", "level"), [("{", Level.FAULT), ('{"lockfileVersion": 1}', None)])
def test_a_lock_that_cannot_be_read_is_a_fault(house: House, content: str, level: Level | None) -> None:
    house.servers(git={"command": "git", "trust": "changes"})
    lock = house.config.with_name("mcpd.lock")
    lock.write_text(content)
    lock.chmod(0o600)
    found = list(check(house.look()))
    assert levels(found) == (["ok"] if level is None else ["ok", level])
    checked = load_with_notes(house.config, {}, SURFACES)
    told = [each.message for each in warnings(checked, house.config, {}) if str(lock) in each.message]
    assert len(told) == (level is not None)
    if level is not None:
        assert f"{lock} approves nothing: it is not a valid mcpd.lock" in only(found, level)
        assert "Repair the file, or remove it" in told[0]


def test_every_fault_is_told_with_its_place(house: House) -> None:
    house.write('{"mcpServers": {"git": {"comand": "x"}}, "lazzy": true}')
    found = list(check(house.look()))
    assert levels(found) == ["fault", "fault"]
    assert {each.what.partition(": unknown")[0] for each in found} == {
        "line 1, column 25: $.mcpServers.git.comand",
        "line 1, column 42: $.lazzy",
    }


@pytest.mark.process
def test_a_variable_that_is_not_set_says_where_it_was_looked_up(house: House) -> None:
    house.servers(git={"command": "${PROGRAM}"})
    said = only(check(house.look()), Level.FAULT)
    assert "PROGRAM is not set" in said
    assert "`mcpd set git env.PROGRAM` asks for its value" in said
    assert "of this command" in said
    with process(house.root) as pid, house.daemon(pid=pid):
        assert f"of the daemon, pid {pid}" in only(check(house.look()), Level.FAULT)
    # A variable of no server is not set by the command for that of a server.
    house.write({"mcpServers": {}, "state": {"url": "${STORE}"}})
    said = only(check(house.look()), Level.FAULT)
    assert ("STORE is not set" in said, "mcpd set" in said) == (True, False)


def test_another_configuration_than_the_daemons_is_a_warning(house: House) -> None:
    other = house.root / "other.json"
    other.write_text("{}")
    with house.daemon(config=str(other)):
        assert str(other) in only(check(house.look(house.config)), Level.WARNING)
        assert "with --config" in only(list(check(house.look()))[2:], Level.NOTE)


def test_a_file_that_was_changed_since_the_start_is_noted_unless_it_is_watched(house: House) -> None:
    git = {"mcpServers": {"git": {"command": "git"}}}
    cases: list[tuple[dict[str, Any], bool, bool]] = [
        ({"startedAt": 1000.0}, False, True),
        ({"startedAt": 1000.0, "configReadAt": 3000.0}, False, False),
        ({"startedAt": 3000.0}, False, False),
        ({"startedAt": 1000.0}, True, False),
    ]
    for times, watched, noted in cases:
        house.write({**git, "watch": watched})
        os.utime(house.config, (2000, 2000))
        with house.daemon(**times):
            found = list(check(house.look()))
        assert [each.level for each in found if "mcpd reload" in each.do] == [Level.NOTE] * noted
        assert levels(found) == ["ok", *["note"] * noted]


@cases("trail", "server")
def test_a_secret_that_everybody_can_read_is_a_fault(house: House, trail: str, server: dict[str, Any]) -> None:
    house.write({"mcpServers": {"s": server}}, mode=0o644)
    said = only(secrets(house.look()), Level.FAULT)
    assert trail in said
    assert f"chmod 600 {house.config}" in said
    assert WORD not in said


def test_a_secret_that_fewer_can_read_is_less(house: House) -> None:
    for mode, level in ((0o640, "warning"), (0o600, "note"), (0o604, "fault")):
        house.write({"mcpServers": {"s": IN_ENV}}, mode=mode)
        (found,) = secrets(house.look())
        assert (found.level, "$.mcpServers.s.env.API_KEY" in found.what + found.why) == (level, True)
    # A closed directory keeps others out.
    house.root.chmod(0o700)
    assert levels(secrets(house.look())) == ["note"]


@cases("server")
def test_references_and_plain_values_are_no_secrets_of_the_file(house: House, server: dict[str, Any]) -> None:
    house.write({"mcpServers": {"s": server}}, mode=0o644)
    assert not list(secrets(house.look(KEY=WORD)))


def test_the_password_of_the_state_is_one_too(house: House) -> None:
    house.write({"state": {"url": f"postgresql://me:{WORD}@h/x"}})
    assert "$.state.url" in only(secrets(house.look()), Level.NOTE)
    token = "tk-0123456789abcdefghijklmnopqrstuv"
    for tokens, place in ((token, ""), ([{"name": "ci", "value": token}], "[0].value")):
        house.write({"listen": {"http": {"tokens": tokens}}})
        assert f"$.listen.http.tokens{place}" in only(secrets(house.look()), Level.NOTE)


def test_a_secret_among_the_arguments_is_seen_by_everybody_also_by_reference(house: House) -> None:
    house.servers(s={"command": "x", "args": ["--token", "${KEY}"]})
    said = only(secrets(house.look(KEY=WORD)), Level.WARNING)
    assert "$.mcpServers.s.args[1]" in said
    assert "ps" in said
    assert WORD not in said


@pytest.mark.parametrize("place", ["config", "folder"])
def test_a_group_that_can_write_is_a_warning_unless_it_is_the_users_own(place: str, house: House) -> None:
    path = house.config if place == "config" else house.config.parent
    path.chmod(0o770)
    own = path.stat().st_gid in {0, os.geteuid()}
    assert levels(secrets(house.look())) == ([] if own else ["warning"])
    if os.geteuid() == 0:
        os.chown(path, 0, NOBODY)
        assert levels(secrets(house.look())) == ["warning"]


def test_a_file_of_another_user_is_a_fault(house: House) -> None:
    if os.geteuid() == 0:
        os.chown(house.config, NOBODY, 0)
        assert f"uid {NOBODY}" in only(secrets(house.look()), Level.FAULT)
    else:
        # What root owns is trusted, and an ordinary user can give nothing away.
        assert not list(secrets(house.look()))


# --- certificates of a real authority, good and bad ----------------------------------------------------------


NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def issued(folder: Path, *, begin: datetime = NOW - DAY, end: datetime = NOW + 90 * DAY) -> Tls:
    """A certificate with its key."""
    made = trustme.CA().issue_cert("mcp.example.org", not_before=begin, not_after=end)
    folder.mkdir()
    made.private_key_pem.write_to_path(folder / "key.pem")
    for part in made.cert_chain_pems:
        part.write_to_path(folder / "cert.pem", append=True)
    return Tls(cert=str(folder / "cert.pem"), key=str(folder / "key.pem"))


def causes(tls: Tls) -> list[tuple[str, object]]:
    """Cause and key of each finding."""
    return [(each.cause, each.key) for each in certificate(tls, NOW.timestamp())]


@pytest.mark.parametrize(
    ("begin", "end", "cause"),
    [
        (-9, -1, "tls-expired"),
        (-9, 0, "tls-expired"),
        (-9, 1, "tls-expires-soon"),
        (-9, SOON_DAYS, None),
        (1, 90, "tls-not-yet-valid"),
        (-1, 12_000, None),
    ],
)
def test_a_certificate_is_good_from_its_first_to_its_last_day(
    tmp_path: Path, begin: int, end: int, cause: str | None
) -> None:
    made = issued(tmp_path / "a", begin=NOW + begin * DAY, end=NOW + end * DAY)
    assert causes(made) == ([] if cause is None else [(cause, "cert")])


def test_files_that_hold_no_certificate_or_are_not_there_or_do_not_fit_are_faults(tmp_path: Path) -> None:
    one, other = issued(tmp_path / "a"), issued(tmp_path / "b")
    assert causes(Tls(cert=one.cert, key=other.key)) == [("tls-does-not-fit", "key")]
    for content in ("", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        Path(one.cert).write_text(content)
        assert causes(one) == [("tls-unusable", "cert")]
    absent = Tls(cert=str(tmp_path / "c.pem"), key=str(tmp_path / "k.pem"))
    assert causes(absent) == [("tls-file-unreadable", "cert"), ("tls-file-unreadable", "key")]


# --- clients whose own rules mean nothing any more since their servers went into mcpd ------------------------


ONE_FOR_ALL = {"mcpd": {"command": "/bin/mcpd", "args": ["connect"]}}
ONE_TO_ONE = {"git": {"command": "/bin/mcpd", "args": ["connect", "--server", "git"]}}


def test_rules_that_hold_no_more_are_named(house: House) -> None:
    house.servers(git={"command": "git"})
    own, settings = house.root / ".claude.json", house.root / ".claude" / "settings.json"
    own.write_text(json.dumps({"mcpServers": ONE_FOR_ALL}))
    settings.parent.mkdir()
    assert not list(check_clients(house.look()))
    settings.write_text('{"permissions": {"deny": ["mcp__git__git_reset", "Bash(rm *)"]}}')
    [found] = check_clients(house.look())
    assert (found.cause, found.level) == ("client-rules-void", "warning")
    assert f"mcp__git__git_reset in {settings}" in found.what
    assert "`mcpd install claude-code`" in found.do
    settings.write_text("{")
    assert [each.cause for each in check_clients(house.look())] == ["not-looked-at"]
    own.write_text(json.dumps({"mcpServers": ONE_TO_ONE}))
    assert not list(check_clients(house.look()))
