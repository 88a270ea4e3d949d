"""What other clients write, for a server or as a whole file, is understood, and whatever is not is said."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config import client_keys, config_model, listen
from daemon.config.client_keys import command_line, fold, referring, shaped, table
from daemon.config.config_model import Config, OAuth, Server, Share, TransportType
from daemon.config.parse import CheckedConfig, load_with_notes
from daemon.config.structure import keys
from daemon.config.translation import Translated, normalized
from daemon.config.tuning import Timeouts
from daemon.errors import Fault
from daemon.surfaces.table import SURFACES
from tests.unit.cases import cases
from tests.unit.config.reading import config_of, faults_in_text


@cases("entry", "found")
def test_a_clients_entry_becomes_ours(entry: dict[str, Any], found: dict[str, Any]) -> None:
    made = Translated(entry)
    assert made.entry == found
    assert not any(note.lost for note in made.notes)


@cases("entry", "milliseconds", "timeouts")
def test_a_time_limit_has_its_clients_unit(
    entry: dict[str, Any], milliseconds: bool | None, timeouts: dict[str, Any]
) -> None:
    assert Translated(entry, milliseconds=milliseconds).entry == {"timeouts": timeouts}


@cases("entry", "key", "message")
def test_what_was_understood_is_said_in_a_line(entry: dict[str, Any], key: str, message: str) -> None:
    (note,) = Translated(entry).notes
    assert (note.key, note.message, note.lost) == (key, message, False)


@cases("entry", "message")
def test_what_could_not_be_taken_is_said_to_be_lost(entry: dict[str, Any], message: str) -> None:
    (note,) = [note for note in Translated(entry).notes if note.lost]
    assert message in note.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ENTRIES = st.dictionaries(
    st.sampled_from(
        [*(key for meant in client_keys.table().server for key in meant.keys), *keys(Server), "oauth"]
    )
    | st.text(max_size=6),
    JSON,
    max_size=8,
)


@given(ENTRIES, st.none() | st.booleans())
def test_no_entry_is_too_odd_and_no_key_is_lost_silently(
    entry: dict[str, Any], milliseconds: bool | None
) -> None:
    before = json.dumps(entry)
    made = Translated(entry, milliseconds=milliseconds)
    assert json.dumps(entry) == before
    noted = {note.key for note in made.notes}
    for key, value in entry.items():
        if key not in noted and not any(each.startswith((f"{key}.", f"{key}[")) for each in noted):
            kept = made.entry[key]
            # `null` says nothing, and an object may have been added to.
            assert kept == value or value is None or isinstance(value, dict)
    json.dumps(dict(made.entry))


ENVIRON = {"HOME": "/home/ada", "LINEAR_KEY": "lin_api_x", "CONTEXT7_API_KEY": "ctx7"}


def checked(tmp_path: Path, client: str) -> CheckedConfig:
    """The configuration in a whole file of a client's."""
    (tmp_path / ".env").write_text("PGPORT=1\nPGPASSWORD='pg s3cr3t'\n")
    path = tmp_path / "mcpd.json"
    path.write_text((Path(__file__).parent / "cases" / client).read_text())
    return load_with_notes(path, ENVIRON, SURFACES)


def keys_of(read: CheckedConfig) -> list[str]:
    """The last key of each note's trail."""
    return [note.path.rpartition(".")[2] for note in read.notes]


def test_claude_desktops_and_clines_file_is_taken(tmp_path: Path) -> None:
    read = checked(tmp_path, "cline.json")
    github, brave = read.config.mcp_servers.values()
    assert (github.enabled, github.timeouts.call) == (True, 60)
    assert (brave.name, brave.title, brave.enabled) == ("brave-search", "Brave Search", False)
    assert brave.env["MAX_RESULTS"] == "10"
    assert keys_of(read) == [
        "disabled", "autoApprove", "alwaysAllow", "timeout", 'mcpServers["Brave Search"]', "env", "disabled",
        "globalShortcut",
    ]  # fmt: skip
    assert not any("ghp_" in note.message for note in read.notes)


def test_cursors_file_is_taken(tmp_path: Path) -> None:
    read = checked(tmp_path, "cursor.json")
    linear, postgres, files = read.config.mcp_servers.values()
    assert linear.headers == {"Authorization": "Bearer lin_api_x"}
    assert postgres.env == {"PGPORT": "5432", "PGSSL": "true", "PGPASSWORD": "pg s3cr3t"}
    assert (files.command, files.args[:2]) == ("npx", ("-y", "@modelcontextprotocol/server-filesystem"))
    assert files.shared_by is Share.WORKSPACE
    assert keys_of(read) == ["env", "command"]


def test_vs_codes_file_is_taken(tmp_path: Path) -> None:
    read = checked(tmp_path, "vs_code.json")
    github, playwright = read.config.mcp_servers.values()
    assert (github.name, github.title, github.type) == ("github", "GitHub", TransportType.HTTP)
    assert playwright.args[1] == "--output-dir=/home/ada/shots"
    assert playwright.uses_workspace
    assert " ".join(keys_of(read)) == "inputs servers GitHub gallery version Playwright envFile dev"
    assert "into the file 'env' next to the configuration" in read.notes[0].message


def test_windsurfs_file_is_taken(tmp_path: Path) -> None:
    read = checked(tmp_path, "windsurf.json")
    assert list(read.config.mcp_servers) == ["figma", "memory", "sequential-thinking"]
    assert read.config.mcp_servers["figma"].url == "http://127.0.0.1:3845/mcp"
    told = dict(zip(keys_of(read), map(str, read.notes), strict=True))
    assert told["disabledTools"].startswith("line 3, column 57: $.mcpServers.figma.disabledTools: mcpd chooses")


def test_opencodes_and_geminis_file_is_taken(tmp_path: Path) -> None:
    read = checked(tmp_path, "opencode.json")
    servers = read.config.mcp_servers
    assert servers["context7"].headers == {"CONTEXT7_API_KEY": "ctx7"}
    everything = servers["everything"]
    assert (everything.command, everything.env) == ("npx", {"MODE": "all", "TOKEN": "ctx7"})
    assert everything.timeouts.list == 5
    assert (servers["gemini"].type, servers["gemini"].timeouts.call_max) == (TransportType.HTTP, 600)
    assert keys_of(read)[0] == "mcp"


def test_servers_in_several_sections_are_all_there_and_the_own_one_counts() -> None:
    config = config_of(
        {
            "mcpServers": {"a": {"command": "x"}},
            "context_servers": {"a": {"command": "y"}, "b": {"command": "y"}},
            "mcp": {"servers": {"c": {"command": "z"}}, "discovery": {}},
        }
    )
    found = {name: server.command for name, server in config.mcp_servers.items()}
    assert found == {"a": "x", "b": "y", "c": "z"}


@cases("config")
def test_both_names_of_a_server_stand_for_it_everywhere(config: object) -> None:
    found = config_of(config)
    category, profile = found.categories["c"], found.profiles["p"]
    assert list(found.mcp_servers) == ["my-git-2", "my-git", "scope-s"]
    assert category.server == "my-git-2"
    assert category.tools.include_names == ("my-git-2/log", "my-git/log", "mcp__my-git-2__diff", "scope-s/t")
    assert category.tools.exclude_patterns == ("my-git-2/x*",)
    assert category.tools.overrides["my-git-2/log"].description == "My Git/log"
    assert profile.core_tools == ("mcp__my-git-2__log",)
    assert profile.permissions[0].match == "my-git-2/*"
    assert found.listen.servers == ("my-git-2",)


def test_without_categories_a_profile_may_name_a_server_by_either_name() -> None:
    config = {"mcpServers": {"My Git": {"command": "x"}}, "profiles": {"p": {"categories": ["My Git"]}}}
    assert config_of(config).profiles["p"].categories == ("my-git",)


def test_a_fault_has_the_trail_and_the_place_at_which_it_is_written(tmp_path: Path) -> None:
    text = '{\n "servers": {\n  "My Git": {"serverUrl": 3, "environment": {"A": []}, "timeout": -1}\n }\n}'
    assert sorted(faults_in_text(text), reverse=True) == [
        ('$.servers["My Git"].serverUrl', "expected text, found a number: put it in double quotes"),
        ('$.servers["My Git"].environment.A', ("expected text, found a list: write one text here; further words"
         " are a list of their own (args)")),
    ]  # fmt: skip
    good = text.replace("3", '"https://h"').replace('"environment": {"A": []}, ', "")
    (tmp_path / "mcpd.json").write_text(good)
    read = load_with_notes(tmp_path / "mcpd.json", {})
    assert [(note.line, note.path) for note in read.notes] == [
        (2, "$.servers"),
        (3, '$.servers["My Git"]'),
        (3, '$.servers["My Git"].serverUrl'),
        (3, '$.servers["My Git"].timeout'),
    ]


@cases("raw")
def test_what_is_of_another_shape_is_left_to_be_told(raw: dict[str, Any]) -> None:
    faults_in_text(json.dumps(raw))


def test_comments_as_keys_and_a_lone_list_of_what_is_allowed_are_ignored() -> None:
    assert config_of({"_comment": "x", "//": "y", "mcp": {"excluded": ["a"]}}) == Config()


@cases("config")
def test_keys_in_snake_case_are_understood_and_noted_and_names_stay_as_they_are(config: dict[str, Any]) -> None:
    normal = normalized(config)
    assert normal.sections["mcpServers"]["a_b"]["limits"] == {"inFlight": 3}
    assert normal.sections["mcpServers"]["a_b"]["env"] == {"in_flight": "1"}
    assert normal.sections["profiles"]["core_tools"]["coreTools"] == ["a_b/x_y"]
    assert normal.sections["categories"]["c"]["tools"] == {
        "includeNames": ["x_y"],
        "overrides": {"include_names": {}},
    }
    # What stands there in both spellings, and what mcpd does not have, is a fault, as it always was.
    assert normal.sections["state"] == {"session_idle": 60, "sessionIdle": 50}
    assert normal.sections["no_such_key"] == 1
    assert {(note.path, note.message) for note in normal.notes} == {
        ("$.mcpServers.a_b.limits.in_flight", "understood as `inFlight`"),
        ("$.profiles.core_tools.core_tools", "understood as `coreTools`"),
        ("$.categories.c.tools.include_names", "understood as `includeNames`"),
    }
    (fault,) = normal.written([Fault(path="$.profiles.core_tools.coreTools[0]", message="x")])
    assert fault.path == "$.profiles.core_tools.core_tools[0]"


CLIENTS_KEYS = [key for meant in client_keys.table().server for key in meant.keys]


def test_no_key_stands_there_twice_none_is_ours_and_what_each_becomes_is_ours() -> None:
    folded = [client_keys.fold(key) for key in CLIENTS_KEYS]
    assert len(folded) == len(set(folded))
    assert not set(folded) & {key.lower() for key in keys(Server)} - {"envfile", "auth", "trust"}
    assert not {*client_keys.table().sections, *client_keys.top_level_keys()} & set(keys(Config))

    table = client_keys.table()
    assert {meant.becomes for meant in table.server} - {""} <= set(keys(Server))
    assert {meant.limits for meant in table.server} - {""} <= set(keys(Timeouts))
    assert set(table.oauth.values()) <= set(keys(OAuth))
    assert set(table.types.values()) <= set(TransportType)


def test_a_key_means_one_thing() -> None:
    for meant in client_keys.table().server:
        said = [meant.becomes, meant.limits, meant.shaped, meant.lost, meant.ignored]
        assert len(list(filter(None, said))) == 1, meant.keys


def test_each_key_is_explained_in_a_sentence_and_no_key_of_ours_is_listed_as_one_that_is_not_there() -> None:
    for meant in client_keys.keys_of_servers().values():
        assert (meant.sentence[0].isupper(), meant.sentence[-1]) == (True, ".")
    for name, instead in client_keys.table().instead.items():
        cls = {**vars(listen), **vars(config_model)}[name]
        assert attrs.has(cls)
        assert not set(instead) & set(keys(cls))


SHAPED = [fold(key) for meant in table().server if meant.shaped for key in meant.keys]


@pytest.mark.parametrize("key", SHAPED)
def test_each_key_with_a_shape_of_its_own_has_one_and_a_value_of_another_type_is_left(key: str) -> None:
    assert any(shaped(key, value) for value in (True, "x", {"headers": {"A": "B"}}, {"A": "B"}, ["A"]))
    others: list[object] = [None, 3, [1], {"headers": 3}]
    assert key in {"auth", "scopes"} or not any(shaped(key, value) for value in others)


@pytest.mark.parametrize("value", ["run:id", ["run:id"], {"A": "run:id"}])
def test_a_key_that_names_a_variable_names_no_command(value: object) -> None:
    assert not [key for key in SHAPED if "${run:" in str(shaped(key, value))]


@cases("command", "words")
def test_a_command_line_is_told_from_a_path_with_spaces(command: object, words: list[str] | None) -> None:
    assert command_line(command) == words


@cases("value", "found")
def test_references_of_other_clients_are_spelt_as_ours(value: object, found: object) -> None:
    assert referring(value, []) == found
