"""Which files are scripts that stay, what they are as tools, and what is wrong with the others."""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from daemon.catalog import forms
from daemon.config.config_files import MAX_CODE
from daemon.config.config_model import Config, TransportType
from daemon.config.parse import load, load_with_notes, plan
from daemon.errors import ConfigError
from daemon.model import Kind
from tests.unit.cases import cases

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
    why = "no script is a tool while a server or category is named script: rename that one"
    assert faults_of(path) == [f"scripts: {why}"]


def test_without_the_extra_no_script_is_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    path = written(tmp_path, good=GOOD)
    assert "script" not in load(path, {}).mcp_servers
    why = "no script is a tool without the extra: pip install 'mcpd-supervisor[code]'"
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
