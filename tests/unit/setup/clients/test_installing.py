"""mcpd in the text of a file: whatever stands there, only its servers are touched, and there is a way back."""

import json
import random
import stat
import sys
from operator import itemgetter
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.documents import files
from daemon.documents.files import DocumentError, FoundFile, replace
from daemon.documents.formats import Format, read_document
from daemon.setup.clients import file_plans
from daemon.setup.clients.file_plans import difference, install_plans, merged_lines, preview, take_out
from daemon.setup.clients.installing import (
    NamedEntry,
    NoProgram,
    Record,
    Records,
    is_own,
    launched,
    members,
    own_command,
    put_in,
)
from daemon.setup.clients.programs import PROGRAMS, ClientPlace
from tests.unit.cases import cases, rows_of
from tests.unit.setup.generated import NAMES, PLACES, entry, servers, text
from tests.unit.setup.installs import EVERYTHING, MCPD, Installs, knows
from tests.unit.setup.machines import machine

WAYS = {
    "all": MCPD,
    "keep": attrs.evolve(MCPD, keep=True),
    "one-to-one": attrs.evolve(MCPD, one_to_one=True),
    "apart": attrs.evolve(MCPD, apart=frozenset({"git", "my.server"})),
}


def says(written: str, place: ClientPlace) -> Any:
    """What a file says; in no order, where servers are a list."""
    value: Any = read_document(written, place.form, source="x").value()
    if place.listed and place.trail[0] in value:
        value[place.trail[0]].sort(key=itemgetter("name"))
    return value


def installed(
    before: str, place: ClientPlace, known: set[str], way: str = "all"
) -> tuple[Record, tuple[str, ...], tuple[str, ...]]:
    put = put_in(before, [place], place, WAYS[way], knows(known))
    assert put.text is not None
    record = Record(path=place.path, form=place.form, members=put.members, original=before, installed=put.text)
    return record, put.taken, put.left


@given(
    place=st.sampled_from([*PLACES.values()]),
    way=st.sampled_from([*WAYS]),
    made=servers,
    known=st.sets(st.sampled_from(NAMES)),
    dice=st.randoms(use_true_random=False),
)
def test_only_servers_are_touched_and_what_is_edited_since_stays(
    place: ClientPlace, way: str, made: dict[str, Any], known: set[str], dice: random.Random
) -> None:
    given_servers = {name: entry(place, name, each) for name, each in made.items()}
    before = text(place, given_servers, dice)

    record, taken, left = installed(before, place, known, way)

    assert set(taken) == (known & made.keys() if way != "keep" else set())
    assert set(left) == (made.keys() - known if way != "keep" else set())
    assert _without_servers(record.installed, place) == _without_servers(before, place)
    names = {member.name for member in members(says(record.installed, place), place.trail, listed=place.listed)}
    gone = set(taken) - WAYS[way].apart if way in {"all", "apart"} else set()
    assert names == (made.keys() - gone) | ({"mcpd"} if way != "one-to-one" else set())

    assert take_out(record, record.installed).text == before
    edited = read_document(record.installed, place.form, source="x")
    edited.put(["edited"], {"by": "me"})
    out = take_out(record, edited.text())
    assert out.text is not None
    assert not out.exact or not record.members
    assert set(out.back) == set(taken)
    assert says(out.text, place) == {**says(before, place), "edited": {"by": "me"}}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_rewritten_entry_keeps_nothing_that_started_or_reached_the_former_server(place: ClientPlace) -> None:
    former = entry(place, "git", ({"command": "uvx", "args": ["a"]}, {"TOKEN": "1"})) | {"url": "http://x"}
    record, _, _ = installed(text(place, {"git": former}, random.Random(1)), place, {"git"}, "one-to-one")
    (member,) = record.members
    now = member.entry(says(record.installed, place))
    assert launched(now) == launched(place.shape.write(MCPD.command, ("connect", "--server", "git")))
    assert isinstance(now, dict)
    assert now["timeout"] == 5, "the user's"


def _without_servers(written: str, place: ClientPlace) -> object:
    document = read_document(written, place.form, source="x")
    document.put(place.trail, False)
    return document.value()


# --- A file without mcpd, where somebody has edited it since -------------------------------------------------


OWN = {"command": "/opt/bin/mcpd", "args": ["connect"]}


def record_of(original: str | None, installed: Any, *names: str) -> Record:
    return Record(
        path=Path("/x.json"),
        form=Format.JSON,
        members=tuple(NamedEntry(("mcpServers",), name) for name in names),
        original=original,
        installed=installed if isinstance(installed, str) else json.dumps(installed),
    )


@cases("original", "current", "left")
def test_what_was_made_for_mcpd_goes_with_it(original: str | None, current: Any, left: Any) -> None:
    done = record_of(original, {"mcpServers": {"mcpd": OWN}}, "mcpd")
    text = take_out(done, json.dumps(current)).text
    assert (None if text is None else json.loads(text)) == left


# --- two sets of changes to one text: both, or neither where they meet ---------------------------------------


def lines(letters: str) -> str:
    return "".join(f"{letter}\n" for letter in letters)


@cases("common", "one", "other", "merged")
def test_changes_of_different_places_come_together(
    common: str, one: str, other: str, merged: str | None
) -> None:
    expected = None if merged is None else lines(merged)
    assert merged_lines(lines(common), lines(one), lines(other)) == expected
    assert merged_lines(lines(common), lines(other), lines(one)) == expected


def test_a_text_that_would_take_too_long_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_plans, "MOST_LINES", 3)
    assert merged_lines(lines("abcd"), lines("abcd"), lines("abcd")) is None


# --- what is shown of a change, and what is not --------------------------------------------------------------


SECRET = "bk-7Qm2xV9bT4Zr8Lw1"
ENTRIES = dict(rows_of(Path(__file__), "entries"))


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_secrets_are_never_shown(entry: object) -> None:
    before = json.dumps({"mcpServers": {"a": entry}}, indent=2)
    for old, new in ((before, "{}"), ("{}", before), (before, None), (None, before)):
        shown = difference(Path("/x.json"), old, new, Format.JSON)
        assert SECRET not in shown
        assert "[redacted]" in shown


def test_a_diff_names_the_file_and_has_little_around_a_change() -> None:
    before = "".join(f'k{number} = "{number}"\n' for number in range(9))
    shown = difference(Path("/x.toml"), before, before.replace('"4"', '"\\u001b"'), Format.TOML)
    assert shown.splitlines()[:2] == ["--- /x.toml", "+++ /x.toml"]
    assert [line[:4] for line in shown.splitlines() if line[:1] == " "] == [" k2 ", " k3 ", " k5 ", " k6 "]
    assert difference(Path("/x.toml"), before, before, Format.TOML) == ""
    assert difference(Path("/x.toml"), None, "a = 1\n", Format.TOML).startswith("--- /dev/null\n+++ /x.toml")


# --- which files of a client are changed, and how; nothing is written ----------------------------------------


def test_local_servers_give_way_with_the_users_and_a_projects_stay(tmp_path: Path) -> None:
    here = machine(tmp_path, "claude-code")
    plans = install_plans(PROGRAMS["claude-code"], here, MCPD, "user", knows(EVERYTHING), Records(tmp_path))
    assert [plan.path for plan in plans] == [here.home / ".claude.json"]
    (change,) = preview(plans)
    assert "git" in change.new.taken
    plans = install_plans(PROGRAMS["claude-code"], here, MCPD, "project", knows(EVERYTHING), Records(tmp_path))
    assert [plan.path for plan in plans] == [here.directory / ".mcp.json"]


def test_servers_of_a_directory_stay_taken_out_when_mcpd_is_installed_from_another(tmp_path: Path) -> None:
    installs = Installs(machine(tmp_path, "claude-code"))
    path = installs.machine.home / ".claude.json"
    before = path.read_bytes()
    installs.install("claude-code")
    after = path.read_bytes()
    elsewhere = Installs(attrs.evolve(installs.machine, directory=tmp_path))
    elsewhere.install("claude-code")
    assert path.read_bytes() == after
    elsewhere.uninstall("claude-code")
    assert path.read_bytes() == before


def test_a_file_that_mcpd_made_stays_if_somebody_writes_it_before_it_is_removed(tmp_path: Path) -> None:
    installs = Installs(machine(tmp_path))
    installs.install("lmstudio")
    (plan,) = file_plans.uninstall_plans(PROGRAMS["lmstudio"], installs.machine, installs.records)
    theirs = iter(['{"theirs": 1}'])

    def change(found: FoundFile) -> file_plans.FileChange:
        made = plan.change(found)
        for written in theirs:
            plan.path.write_text(written)
        return made

    file_plans.apply([file_plans.FilePlan(plan.path, change)], "lmstudio", installs.records)
    assert plan.path.read_text() == '{"theirs": 1}'


def test_a_file_that_is_there_without_servers_gets_mcpd_as_it_is_written(tmp_path: Path) -> None:
    here = machine(tmp_path)
    (plan,) = install_plans(PROGRAMS["lmstudio"], here, MCPD, "user", knows(()), Records(tmp_path))
    found = FoundFile(
        path=plan.path, target=plan.path, content=b'\xef\xbb\xbf{\r\n\t"a": 1\r\n}', identity=(1,)
    )
    change = plan.change(found)
    assert change.after is not None
    assert change.after.startswith('\ufeff{\r\n\t"a": 1,\r\n\t"mcpServers": {\r\n')
    assert "\n" not in change.after.replace("\r\n", "")
    assert "mcpd" in json.loads(change.after.removeprefix("\ufeff"))["mcpServers"]


# --- which mcpd clients start, and how it is recognised in their files ---------------------------------------


def test_the_program_that_runs_is_named_by_its_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mcpd").symlink_to("/bin/true")
    monkeypatch.chdir(tmp_path)
    assert own_command("./mcpd") == str(tmp_path / "mcpd")


def test_run_as_a_module_it_is_the_one_beside_the_interpreter_or_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, on_path = tmp_path / "venv", tmp_path / "bin"
    for directory in (beside, on_path):
        directory.mkdir()
        (directory / "mcpd").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(on_path))
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    assert own_command("/x/daemon/__main__.py") == str(beside / "mcpd")
    (beside / "mcpd").unlink()
    assert own_command("/x/daemon/__main__.py") == str(on_path / "mcpd")
    (on_path / "mcpd").unlink()
    with pytest.raises(NoProgram, match="install mcpd first"):
        own_command("/x/daemon/__main__.py")


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_what_is_written_is_recognised(place: ClientPlace) -> None:
    assert is_own(place.shape.write("/opt/my bin/mcpd", ["connect", "--profile", "x"]))
    assert not is_own(place.shape.write("/opt/mcpd", ["status"]))
    assert not is_own(place.shape.write("uvx", ["mcp-server-time"]))


@cases("entry", "own")
def test_other_ways_to_write_it(entry: Any, own: bool) -> None:
    assert is_own(entry) is own


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(
        path=tmp_path / "mcp.json",
        form=Format.JSON,
        members=(NamedEntry(("mcpServers",), "é"), NamedEntry(("a",), "b", listed=True)),
        original='\ufeff{"a": "s3cret"}\r\n',
        installed="{}",
    )


def test_a_record_is_kept_for_the_user_alone_and_found_again(tmp_path: Path, record: Record) -> None:
    records = Records(tmp_path / "state")
    assert records.find("cursor", record.path) is None
    records.keep("cursor", record)
    assert records.find("cursor", record.path) == record
    assert records.of("cursor") == [record]
    assert records.of("codex") == []
    for path in (tmp_path / "state" / "clients").rglob("*"):
        if path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "s3cret" not in repr(record)


@pytest.mark.parametrize("at", range(3))
def test_a_record_that_cannot_be_replaced_is_the_former_one(
    at: int, tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records(tmp_path)
    records.keep("cursor", record)
    left = iter(range(at))

    def on_a_disk_that_becomes_full(found: FoundFile, content: bytes, *, private: bool) -> None:
        if next(left, None) is None:
            raise DocumentError("full")
        replace(found, content, private=private)

    monkeypatch.setattr(files, "replace", on_a_disk_that_becomes_full)
    with pytest.raises(DocumentError):
        records.keep("cursor", attrs.evolve(record, original="other", installed="other, too"))
    assert records.find("cursor", record.path) == record


@pytest.mark.parametrize("name", ["original", "installed", "record.json"])
def test_a_record_of_which_a_part_is_not_what_it_was_is_none(tmp_path: Path, record: Record, name: str) -> None:
    records = Records(tmp_path)
    records.keep("cursor", record)
    (path,) = records.directory("cursor", record.path).glob(f"{name}*")
    for harm in (None, b"{}x", b"\xff\0"):
        path.unlink()
        if harm is not None:
            path.write_bytes(harm)
        assert records.find("cursor", record.path) is None
        assert records.of("cursor") == []
        path.touch()


def test_a_record_is_forgotten_with_its_backup_or_without(tmp_path: Path, record: Record) -> None:
    records = Records(tmp_path)
    records.keep("cursor", record)
    records.forget("cursor", record.path, leave_backup=True)
    assert records.find("cursor", record.path) is None
    assert [path.name for path in records.directory("cursor", record.path).iterdir()] == ["original"]
    records.forget("cursor", record.path)
    assert not records.directory("cursor", record.path).exists()


def test_one_command_at_a_time_works_on_them(tmp_path: Path) -> None:
    with (
        Records(tmp_path).locked(),
        pytest.raises(DocumentError, match="is running"),
        Records(tmp_path).locked(),
    ):
        pass
    with Records(tmp_path).locked():
        pass
    (tmp_path / "clients.lock").unlink()
    (tmp_path / "clients.lock").mkdir()
    with pytest.raises(DocumentError, match=r"clients\.lock cannot be opened"), Records(tmp_path).locked():
        pass
