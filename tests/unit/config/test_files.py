"""A configuration's files: those that others can write are not read, and scripts beside them are tools."""

import importlib.util
import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.catalog import forms
from daemon.config import config_files
from daemon.config.config_files import FOLDER, MAX_BYTES, MAX_CODE, MAX_FILES, files_of, open_to_others
from daemon.config.config_model import Config, TransportType
from daemon.config.expand import MAX_FILE
from daemon.config.parse import load, load_with_notes, plan
from daemon.errors import ConfigError
from daemon.model import Kind
from daemon.surfaces.table import SURFACES
from tests.unit.cases import cases

STRANGER = 64_322
"""A user that no machine has."""

FOREIGN = 54_321
"""A group that nobody here is in."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "above" / "below"
    directory.mkdir(parents=True)
    path = directory / "mcpd.json"
    path.write_text("{}")
    for each in (path, path.parent, path.parent.parent):
        each.chmod(0o700)
    return path


def test_a_file_of_variables_that_goes_while_it_is_read_is_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = path.with_name("env")
    assert config_files.read_env_file_of(path) == config_files.EnvFile()
    env.write_text("TOKEN=x")

    def read(_text: str) -> dict[str, str]:
        env.unlink()
        return {}

    monkeypatch.setattr(config_files, "read_env", read)
    assert config_files.read_env_file_of(path) == config_files.EnvFile()


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as error:
        load(path, {})
    (fault,) = error.value.faults
    return fault.message


@pytest.mark.parametrize("above", [0, 1, 2])
def test_what_every_user_can_write_is_refused_with_the_command_that_mends_it(path: Path, above: int) -> None:
    each = (path, *path.parents)[above]
    each.chmod(0o702)
    message = refused(path)
    assert message.startswith(f"every user of this machine can write {each}, ")
    # On a disk of Windows, all files have the mode that it is mounted with.
    assert f"`chmod o-w {each}`, or where modes are fixed (WSL's /mnt/c, vfat) move the config" in message
    each.chmod(stat.S_IMODE(each.stat().st_mode) & ~stat.S_IWOTH)
    load(path, {})


def test_all_that_is_open_is_named_at_once(path: Path) -> None:
    path.chmod(0o666)
    path.parent.chmod(0o777)
    named = [fault.message.split(",")[0].rpartition(" ")[2] for fault in open_to_others(path)]
    assert named == [str(path), str(path.parent)]


def test_the_directory_that_a_link_leads_to_counts_and_so_does_that_of_the_link(path: Path) -> None:
    links = path.parent.parent / "links"
    links.mkdir(mode=0o700)
    link = links / "mcpd.json"
    link.symlink_to(path)
    load(link, {})
    for each in (links, path.parent, path):
        each.chmod(0o703)
        assert f"`chmod o-w {each}`" in refused(link)
        each.chmod(0o700)


def test_every_link_on_the_way_counts_with_its_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can replace a link in the middle says which file is read."""
    for name in ("links", "open"):
        (path.parent.parent / name).mkdir(mode=0o700)
    link, middle = path.parent.parent / "links" / "l.json", path.parent.parent / "open" / "cur.json"
    link.symlink_to("../open/cur.json")
    middle.symlink_to(path)
    load(link, {})
    middle.parent.chmod(0o777)
    assert f"`chmod o-w {middle.parent}`" in refused(link)
    through = path.parent.parent / "through"
    through.symlink_to(middle.parent)
    assert f"`chmod o-w {middle.parent}`" in refused(through / "cur.json")
    monkeypatch.chdir(path.parent)
    assert f"`chmod o-w {middle.parent}`" in refused(Path("../links/l.json"))


def test_links_that_lead_nowhere_or_on_and_on_end(path: Path) -> None:
    round_and_round = path.parent / "a"
    round_and_round.symlink_to("b")
    (path.parent / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        open_to_others(round_and_round)
    (path.parent / "c").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        open_to_others(path.parent / "c")


def test_in_a_sticky_directory_only_what_is_ours_or_roots_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner can replace it there, or made it first under the name that we were going to use."""

    def said() -> list[str]:
        return [fault.message for fault in open_to_others(path) if f" {path} " in fault.message]

    path.parent.chmod(0o1777)
    assert not said()
    if path.stat().st_uid == 0:
        os.chown(path, FOREIGN, path.stat().st_gid)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    assert not said()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    (message,) = said()
    assert message.startswith(f"user {owner} owns {path} in a directory that every user can write")
    assert message.endswith("move it to a directory of your own")
    path.parent.chmod(0o700)
    assert not said()


def test_a_group_may_write_if_it_is_our_own_or_the_owners(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every user has a group alone, files are made with mode 664."""
    path.chmod(0o664)
    path.parent.chmod(0o2775)
    load(path, {})
    if os.geteuid() == 0:
        os.chown(path, 0, FOREIGN)
        message = refused(path)
        assert message.startswith(f"group {FOREIGN} can write {path}")
        assert f"`chmod g-w {path}`" in message
        os.chown(path, FOREIGN, FOREIGN)
        monkeypatch.setattr(config_files, "_UID_MAP", Path(os.devnull))
        load(path, {})


def test_a_file_system_that_nobody_can_write_is_fine_whatever_the_modes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes mounts a ConfigMap so."""
    path.parent.chmod(0o777)
    assert refused(path)
    assert not open_to_others(Path(os.devnull)), "what is no file is not ours to judge"
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_RDONLY))
    load(path, {})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcpd.json"
    path.write_text('{"profiles": {"own": {"surface": "browse"}}}')
    (tmp_path / FOLDER).mkdir()
    return path


def write(config: Path, name: str, text: str | bytes) -> Path:
    path = config.parent / FOLDER / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def faults(config: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(config, {}, ("category", "browse", "search"))
    return [str(fault) for fault in caught.value.faults]


def test_each_file_is_the_profile_of_its_name_and_what_others_keep_beside_them_is_none(config: Path) -> None:
    write(config, "reader.json", '{"surface": "search", /* few */ "coreTools": ["read"],}')
    write(config, "default.json", '{"surface": "search"}')
    write(config, "notes.txt", "no profile")
    write(config, "._reader.json", b"\0\5\x16\7")
    (config.parent / FOLDER / ".#reader.json").symlink_to("me@host.1234:5678")
    profiles = load(config, {}).profiles
    assert set(profiles) == {"default", "own", "reader"}
    assert (profiles["reader"].name, profiles["reader"].core_tools) == ("reader", ("read",))
    assert profiles["default"].surface == "search"


def test_a_profile_in_two_places_is_a_fault_that_names_both(config: Path) -> None:
    write(config, "own.json", "{}")
    (told,) = faults(config)
    assert told.startswith("profiles.d/own.json: ")
    assert f"{config} has this profile, too, at $.profiles.own" in told


def test_a_fault_within_a_file_names_the_file_and_the_place_in_it(config: Path) -> None:
    write(config, "reader.json", '{"surface": "nonsense", "coreTool": []}')
    write(config, "broken.json", '{"surface": ')
    write(config, "list.json", "[]")
    write(config, "latin.json", b'{"prompt": "\xe4"}')
    write(config, "large.json", " " * (MAX_BYTES + 1))
    with pytest.raises(ConfigError) as caught:
        load(config, {}, SURFACES)
    assert {(fault.path, fault.line, fault.column) for fault in caught.value.faults} == {
        ("profiles.d/reader.json $.surface", 1, 2),
        ("profiles.d/reader.json $.coreTool", 1, 25),
        ("profiles.d/broken.json $", 1, 13),
        ("profiles.d/list.json $", 1, 1),
        ("profiles.d/latin.json", None, None),
        ("profiles.d/large.json", None, None),
    }


def test_what_others_can_write_or_is_no_regular_file_is_refused_by_name_and_not_waited_for(
    config: Path,
) -> None:
    write(config, "reader.json", "{}").chmod(0o666)
    os.mkfifo(config.parent / FOLDER / "pipe.json", 0o600)
    (config.parent / FOLDER / "folder.json").mkdir(0o700)
    folder, pipe, reader = faults(config)
    assert folder == "profiles.d/folder.json: cannot be read: Is a directory"
    assert pipe.startswith("profiles.d/pipe.json: this is not a regular file")
    assert reader.startswith("profiles.d/reader.json: every user of this machine can write")


def test_a_folder_of_something_else_or_a_file_in_its_place_is_refused(config: Path) -> None:
    for number in range(MAX_FILES + 1):
        write(config, f"{number}.json", "{}")
    assert any(told.startswith(f"profiles.d: {MAX_FILES + 1} files") for told in faults(config))
    (config.parent / FOLDER).rename(config.parent / "moved")
    (config.parent / FOLDER).write_text("")
    assert faults(config) == ["profiles.d: cannot be listed: Not a directory"]


def test_variables_are_kept_beside_the_configuration(config: Path) -> None:
    env = config.with_name("env")
    env.write_text("# mine\nTOKEN='k3pt s3cr3t'\nHOME=/nowhere\n")
    env.chmod(0o600)
    config.write_text('{"mcpServers": {"s": {"command": "x", "args": ["${TOKEN}", "${env:HOME}"]}}}')
    loaded = load_with_notes(config, {"HOME": "/home/ada"})
    server = loaded.config.mcp_servers["s"]
    assert server.args == ("k3pt s3cr3t", "/home/ada")
    assert server.credentials == {"k3pt s3cr3t"}
    assert loaded.notes == ()


def test_they_belong_to_what_is_watched_and_are_noted_if_others_can_read_them(config: Path) -> None:
    assert files_of(config) == []
    env = config.with_name("env")
    env.write_text("TOKEN=x")
    env.chmod(0o644)
    (note,) = load_with_notes(config, {}).notes
    assert str(note) == f"env: other users can read this file: `chmod 600 {env}`"
    config.with_name("mcpd.lock").write_text("{}")
    assert files_of(config) == [env, config.with_name("mcpd.lock")]


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (b"TOKEN=x", 0o666, "env: every user of this machine can write"),
        (b"A=1\ns3cr3t", 0o600, "env: line 2 is not KEY=VALUE: write NAME=VALUE, or a # before a comment"),
        (b"A=\xff", 0o600, "env: line 1 is not UTF-8"),
        (b"#" * (MAX_FILE + 1), 0o600, "env: larger than 64 KiB: this is not a file of variables"),
    ],
)
def test_a_bad_file_of_variables_is_a_fault_that_names_it(
    config: Path, content: bytes, mode: int, told: str
) -> None:
    env = config.with_name("env")
    env.write_bytes(content)
    env.chmod(mode)
    (fault,) = faults(config)
    assert fault.startswith(told)
    assert "s3cr3t" not in fault


def test_root_obeys_no_other_users_configuration(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    lstat = Path.lstat

    def owned(owner: int, what: Path) -> None:
        def of(self: Path) -> os.stat_result:
            fields = list(lstat(self))
            fields[4] = owner if self == what else 0
            return os.stat_result(fields)

        monkeypatch.setattr(Path, "lstat", of)

    owned(0, path)
    load(path, {})
    for what in (path, path.parent):
        owned(STRANGER, what)
        assert f"user {STRANGER} owns {what}, and root accepts no other user's" in refused(path)
        assert f"`sudo -u '#{STRANGER}' …`" in refused(path)
    monkeypatch.setattr(config_files, "_UID_MAP", path.with_name("uid_map"))
    path.with_name("uid_map").write_text("0 1000 1\n")
    load(path, {})


GOOD = '"""Adds."""\n\nasync def main(a: int) -> int:\n    return a\n'
ALL: dict[str, Any] = {"profiles": {"default": {"scripts": ["*"]}, "bare": {}}}


def written(place: Path, said: dict[str, Any] = ALL, **texts: str) -> Path:
    """A configuration with scripts next to it."""
    (place / "scripts").mkdir(exist_ok=True, mode=0o755)
    for name, text in texts.items():
        (place / "scripts" / f"{name}.py").write_text(text)
    (place / "mcpd.json").write_text(json.dumps(said))
    return place / "mcpd.json"


def faults_of(path: Path) -> list[str]:
    """The faults of scripts, which cost nothing else."""
    return [str(fault) for fault in load(path, {}).script_faults]


def tool_of(config: Config, name: str = "x") -> Any:
    return json.loads(config.mcp_servers["script"].scripts[name][1])


def main(parameters: str) -> str:
    return f'"""Does."""\nasync def main({parameters}): ...\n'


@cases("kind", "schema")
def test_the_type_of_a_parameter_is_its_schema(tmp_path: Path, kind: str, schema: object) -> None:
    tool = tool_of(load(written(tmp_path, x=main(f"a: {kind}")), {}))
    shape = {"type": "object", "required": ["a"], "additionalProperties": False}
    assert tool["inputSchema"] == {**shape, "properties": {"a": schema}}


def test_parameters_with_a_default_need_not_be_given_whether_by_name_alone_or_not(tmp_path: Path) -> None:
    text = main("a: int, b: str = 'x', *, c: list[int] = [1], d: bool, e: int | None = None")
    schema = tool_of(load(written(tmp_path, x=text), {}))["inputSchema"]
    assert schema["required"] == ["a", "d"]
    defaults = {name: each["default"] for name, each in schema["properties"].items() if "default" in each}
    assert defaults == {"b": "x", "c": [1], "e": None}


@cases("kind")
def test_any_other_type_is_a_fault_with_its_place_and_the_types_that_there_are(
    tmp_path: Path, kind: str
) -> None:
    (said,) = faults_of(written(tmp_path, x=main(f"a: int, b: {kind}"), good=GOOD))
    assert said.startswith(
        "line 2, column 24: scripts/x.py: the type of b must be int, float, str, bool, None,"
    )


TOO_LONG = GOOD + "#" * MAX_CODE


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (main("a"), "line 2, column 16: scripts/x.py: the type of a must be int"),
        (main("a: int = b"), "line 2, column 16: scripts/x.py: the type of a must be int"),
        (main("a: int = print(1)"), "its default a literal"),
        (main("*a: int"), "scripts/x.py: callers name all arguments of `main`"),
        (main("**a: int"), "scripts/x.py: callers name all arguments of `main`"),
        (main("a: int, /"), "scripts/x.py: callers name all arguments of `main`"),
        ("async def main(): ...", "scripts/x.py: write a docstring at the top"),
        ('"""Does."""\n', "and `async def main(...)`"),
        ('"""Does."""\nclass main: ...\n', "and `async def main(...)`"),
        ('"""Does."""\nmain = 3\n', "and `async def main(...)`"),
        ('"""Does."""\ndef main(:\n', "line 2, column 10: scripts/x.py: invalid syntax"),
        (f'"""Does."""\nx = {"(" * 5000}{")" * 5000}\n', "scripts/x.py: too many nested parentheses"),
        (f'"""Does."""\nx = {"-" * 100_000}1\n', f"scripts/x.py: larger than {MAX_CODE // 1024} KiB"),
        (f'"""Does."""\nx = {"-" * 50_000}1\n', "scripts/x.py: "),
        (main("a: int = 1\x00"), "scripts/x.py: "),
        (main("a: str = '\\ud800'"), "scripts/x.py: cannot be read: Unicode"),
        (main("a: int = 1j"), "scripts/x.py: cannot be read: TypeError"),
        (TOO_LONG, f"scripts/x.py: larger than {MAX_CODE // 1024} KiB: this is not a script"),
    ],
)
def test_a_faulty_script_says_what_to_write_and_costs_no_other(tmp_path: Path, text: str, fault: str) -> None:
    path = written(tmp_path, x=text, good=GOOD)
    config = load(path, {})
    (said,) = map(str, config.script_faults)
    assert fault in said
    assert list(config.mcp_servers["script"].scripts) == ["good"]
    with pytest.raises(ConfigError) as strict:
        load_with_notes(path, {})
    assert strict.value.faults == config.script_faults
    assert plan(Config(), config).faults == (said,)


def test_files_that_others_may_have_made_are_refused_with_the_reason(tmp_path: Path) -> None:
    path = written(tmp_path, good=GOOD, open=GOOD)
    place = tmp_path / "scripts"
    (place / "open.py").chmod(0o666)
    (tmp_path / "elsewhere.py").write_text(GOOD)
    (place / "linked.py").symlink_to(tmp_path / "elsewhere.py")
    (place / "folder.py").mkdir()
    (place / "latin.py").write_bytes(GOOD.encode() + b"# \xff\n")
    (place / "a-b.py").write_text(GOOD)
    (place / ".hidden.py").write_text("not read")
    os.mkfifo(place / "pipe.py")
    config = load(path, {})
    assert list(config.mcp_servers["script"].scripts) == ["good"]
    beginnings = [
        "scripts/a-b.py: put a regular file here, not a link, with a name of letters, digits and _",
        "scripts/folder.py: ",
        "scripts/latin.py: line 5 is not UTF-8",
        "scripts/linked.py: put a regular file here, not a link",
        "scripts/open.py: every user of this machine can write ",
        "scripts/pipe.py: this is not a regular file: put the script itself here",
    ]
    said = [str(fault) for fault in config.script_faults]
    assert [text[: len(begin)] for text, begin in zip(said, beginnings, strict=True)] == beginnings


def test_what_no_profile_names_is_not_read(tmp_path: Path) -> None:
    nobody = load(written(tmp_path, {}, x="no Python at all"), {})
    assert (nobody.mcp_servers, nobody.script_faults) == ({}, ())
    one = load(written(tmp_path, {"profiles": {"p": {"scripts": ["good"]}}}, good=GOOD), {})
    assert (list(one.mcp_servers["script"].scripts), one.script_faults) == (["good"], ())


@pytest.mark.parametrize("name", ["gone", "../mcpd", "a/b", ""])
def test_a_name_without_a_script_is_a_fault(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, {"profiles": {"p": {"scripts": [name, "good"]}}}, good=GOOD)
    (said,) = faults_of(path)
    assert said.startswith(f"scripts/{name}.py: ")
    assert list(load(path, {}).mcp_servers["script"].scripts) == ["good"]


@pytest.mark.parametrize("section", ["mcpServers", "categories"])
def test_a_server_or_category_of_that_name_keeps_it(tmp_path: Path, section: str) -> None:
    entry = {"command": "true"} if section == "mcpServers" else {"tools": {"includeNames": ["a/b"]}}
    said = {**ALL, "mcpServers": {"a": {"command": "true"}}}
    path = written(tmp_path, {**said, section: {**said.get(section, {}), "script": entry}}, good=GOOD)
    config = load(path, {})
    assert all(server.type is TransportType.STDIO for server in config.mcp_servers.values())
    why = "scripts are not offered while a server or category is named script: rename it"
    assert faults_of(path) == [f"scripts: {why}"]


def test_without_the_extra_no_script_is_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    path = written(tmp_path, good=GOOD)
    assert "script" not in load(path, {}).mcp_servers
    why = "scripts need the extra: pip install 'mcpd-supervisor[code]'"
    assert faults_of(path) == [f"scripts: {why}"]


def test_a_directory_of_another_purpose_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    for number in range(300):
        (tmp_path / "scripts" / f"s{number}.py").write_text(GOOD)
    assert faults_of(path) == ["scripts: 300 scripts, of which 256 are read at most"]
    assert "script" not in load(path, {}).mcp_servers


def test_categories_do_not_hide_scripts(tmp_path: Path) -> None:
    said = {
        "mcpServers": {"a": {"command": "true"}},
        "categories": {"one": {"server": "a", "description": "One."}},
        "profiles": {"default": {"scripts": ["x"], "categories": ["one"]}, "all": {}},
    }
    config = load(written(tmp_path, said, x=GOOD), {})
    assert config.categories["script"].server == "script"
    assert config.profiles["default"].categories == ("one", "script")
    assert config.profiles["all"].categories is None
    alone = load(written(tmp_path, ALL, x=GOOD), {})
    assert not alone.categories, "each server is one"


def test_another_text_is_another_form_for_trust_and_the_same_text_is_not(tmp_path: Path) -> None:
    def definition(text: str) -> bytes:
        return load(written(tmp_path, x=text), {}).mcp_servers["script"].scripts["x"][1]

    was, same, now = definition(GOOD), definition(GOOD), definition(GOOD + "# 1\n")
    assert (was, forms.change(Kind.TOOL, was, same)) == (same, {})
    assert forms.change(Kind.TOOL, was, now) == {"members": ["_meta"]}


def test_the_code_ends_with_a_call_of_main_and_keeps_its_lines(tmp_path: Path) -> None:
    for head, call in (("async def", "await main"), ("def", "main")):
        text = f'"""Does."""\n{head} main(a: int): return a'
        code, _ = load(written(tmp_path, x=text), {}).mcp_servers["script"].scripts["x"]
        assert code == f"{text}\n{call}(**_mcpd_arguments)"
