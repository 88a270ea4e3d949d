"""Servers that are added to the configuration, with their secrets beside it."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from daemon.config.config_model import Trust
from daemon.config.expand import variable_of
from daemon.config.parse import load
from daemon.documents.files import DocumentError
from daemon.errors import ConfigError
from daemon.sandbox import policy
from daemon.secrets import keyring
from daemon.setup import moved_secrets
from daemon.setup.adding import WordsError, is_newer, pairs, wanted, with_versions
from daemon.setup.clients.importing import ImportPlan, drafted, find
from daemon.setup.clients.programs import PROGRAMS
from daemon.setup.drafts import Draft, changed, known_values, read_present
from tests.unit.cases import cases
from tests.unit.setup.machines import machine, put

KEY = "bk-7Qm2xV9bT4Zr8Lw1"
WRITTEN = """{
  // mine
  "mcpServers": {
    "own": {"command": "own", "args": ["--token", "own-Qx7Rm2Vb9"]}, // stays
  },
}
"""


def config(at: Path) -> Path:
    return at / "home" / ".config" / "mcpd" / "mcpd.json"


def draft_of(at: Path, *clients: str) -> Draft:
    here = machine(at, *clients)
    present = read_present(config(at))
    planned = ImportPlan(find(here, [PROGRAMS[name] for name in clients]), present, here.environ)
    return drafted(present, planned, here.environ)


def test_a_new_configuration_is_one_that_mcpd_runs_with(tmp_path: Path) -> None:
    draft_of(tmp_path, "claude-code").write()
    made = load(config(tmp_path), {"HOME": str(tmp_path)})
    assert set(made.mcp_servers) == {"time", "notion", "brave-search", "files", "events", "git"}
    assert made.mcp_servers["brave-search"].env == {"BRAVE_API_KEY": KEY}
    assert made.mcp_servers["notion"].headers == {"Authorization": "Bearer nt-4hT8kQ2mZx9Vb1Rs"}
    env = config(tmp_path).with_name("env")
    assert env.stat().st_mode & 0o777 == 0o600
    assert KEY in env.read_text()
    assert KEY not in config(tmp_path).read_text()


def test_a_created_configuration_holds_changes_and_asks_for_sandboxes_where_they_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = draft_of(tmp_path, "codex")
    assert (json.loads(made.config)["sandbox"], made.unconfined, made.creates) == ("home", None, True)
    missing = policy.unavailable("bubblewrap (bwrap) is not installed", problem="bwrap")
    monkeypatch.setattr("daemon.setup.drafts.launch.trial", lambda _: missing)
    made = draft_of(tmp_path, "codex")
    assert (json.loads(made.config)["sandbox"], made.unconfined) == ("off", missing)
    made.write()
    assert load(config(tmp_path), {"HOME": str(tmp_path)}).trust is Trust.CHANGES
    assert list(json.loads(config(tmp_path).read_text())) == ["mcpServers", "sandbox", "trust"]
    # One that is there says what it said.
    for text in (WRITTEN, "{}", ""):
        put(config(tmp_path), text)
        made = draft_of(tmp_path, "codex")
        assert (made.unconfined, made.creates) == (None, False)
        assert not {"sandbox", "trust"} & {*re.findall(r"\w+", made.config)}


def test_nothing_is_created_where_nothing_is_added(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file is empty"):
        moved_secrets.with_own_variables(read_present(config(tmp_path)), {})


def test_what_is_written_there_stays_as_it_is_and_the_diff_shows_no_secret(tmp_path: Path) -> None:
    path = put(config(tmp_path), WRITTEN)
    env = put(path.with_name("env"), "# mine\nA=1\n", 0o640)
    draft = draft_of(tmp_path, "codex")
    told = draft.diff()
    assert '+    "brave-search": {' in told
    assert "+BRAVE_SEARCH__BRAVE_API_KEY=(a secret)" in told
    assert KEY not in told
    assert "own-Qx7Rm2" not in told
    draft.write()
    text = path.read_text()
    assert text.startswith("{\n  // mine\n")
    assert '"own": {"command": "own", "args": ["--token", "own-Qx7Rm2Vb9"]}, // stays\n' in text
    assert env.read_text() == f"# mine\nA=1\nBRAVE_SEARCH__BRAVE_API_KEY={KEY}\n"
    assert env.stat().st_mode & 0o777 == 0o600


def test_both_files_are_written_or_none(tmp_path: Path) -> None:
    path = put(config(tmp_path), WRITTEN)
    env = put(path.with_name("env"), "A=1\n")
    draft = draft_of(tmp_path, "codex")
    put(path, WRITTEN + "\n")
    with pytest.raises(DocumentError, match="nothing was changed"):
        draft.write()
    assert env.read_text() == "A=1\n"
    assert path.read_text() == WRITTEN + "\n"


@pytest.mark.parametrize("text", ['{"mcpServers": {}, "lazy": 5}', '{"mcpServers": []}', "[", "[]"])
def test_a_configuration_with_faults_is_not_touched(text: str, tmp_path: Path) -> None:
    put(config(tmp_path), text)
    with pytest.raises(ConfigError):
        draft_of(tmp_path, "codex")
    assert config(tmp_path).read_text() == text


def test_a_file_of_secrets_that_makes_no_sense_is_not_touched(tmp_path: Path) -> None:
    put(config(tmp_path).with_name("env"), "A=1\nnonsense\n")
    with pytest.raises(DocumentError, match=r"env: line 2 .*: write one KEY=VALUE a line"):
        draft_of(tmp_path, "codex")


@pytest.mark.parametrize("before", [WRITTEN, None])
def test_what_was_written_is_taken_back_unless_somebody_else_has_written_since(
    before: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "mcpd.json"
    if before is not None:
        path.write_text(before)
    adding_x(path).undo()
    assert (path.read_text() if path.exists() else None) == before
    assert not (tmp_path / "env").exists()
    draft = adding_x(path)
    path.write_text("theirs")
    with pytest.raises(DocumentError, match="somebody else"):
        draft.undo()
    assert path.read_text() == "theirs"


def adding_x(path: Path) -> Draft:
    """A draft that is written."""
    draft = changed(
        read_present(path), lambda text: text.put(["mcpServers", "x"], {"command": "x"}), {"A": "b"}, {}
    )
    draft.write()
    return draft


@cases("text", "place")
def test_a_server_is_found_where_it_is_written(text: str, place: list[str], tmp_path: Path) -> None:
    (tmp_path / "c").write_text(text)
    assert read_present(tmp_path / "c").places == {"brave-search": tuple(place)}


# --- secrets that are moved out of entries -------------------------------------------------------------------


@cases("entry", "moved", "kept")
def test_secrets_become_variables(entry: dict[str, Any], moved: dict[str, Any], kept: dict[str, str]) -> None:
    variables = moved_secrets.Variables(known={})
    assert moved_secrets.with_references(entry, "git-hub", {KEY[:12], KEY}, variables) == moved
    assert variables.kept == kept
    assert KEY not in repr(variables)


def test_a_name_that_has_another_value_gets_a_number() -> None:
    variables = moved_secrets.Variables(known={"A_B__API_KEY": "another"})
    assert variables.keep("a-b", "API_KEY", "mine") == "${A_B__API_KEY_2}"
    assert variables.keep("a-b", "API_KEY", "mine") == "${A_B__API_KEY_2}"
    assert variables.keep("a_b", "API_KEY", "another") == "${A_B__API_KEY}"
    assert variables.kept == {"A_B__API_KEY_2": "mine", "A_B__API_KEY": "another"}


def test_a_secret_of_the_keyring_has_a_name_that_the_keyring_takes() -> None:
    variables = moved_secrets.Variables(known={"keyring:GIT__KEY": "another"}, keyring=True)
    assert variables.keep("git", "KEY", "mine") == "${keyring:GIT__KEY_2}"
    assert variables.keep("git", "KEY", "another") == "${keyring:GIT__KEY}"
    assert variables.keep("1password", "TOKEN", "mine") == "${keyring:1PASSWORD__TOKEN}"
    assert variables.keep("git", "CLIENT_SECRET", "mine", late=False) == "${GIT__CLIENT_SECRET}"
    longest = variables.keep("git", "A" * 500, "mine")
    for name, value in variables.kept.items():
        if name.startswith("keyring:"):
            assert keyring.checked(name.removeprefix("keyring:"))
        assert value == "mine"
    assert len(longest) < 140
    assert [*variables.kept][:3] == ["keyring:GIT__KEY_2", "keyring:1PASSWORD__TOKEN", "GIT__CLIENT_SECRET"]


def test_what_is_written_with_its_secrets_is_undone_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/none")
    environ = {"HOME": str(tmp_path / "home")}
    present, kept = read_present(put(config(tmp_path), WRITTEN)), {"keyring:KEY": "canary", "PLAIN": "other"}
    made = changed(
        present,
        lambda document: document.put(("mcpServers", "x"), {"command": "x", "env": {"K": "${keyring:KEY}"}}),
        kept,
        environ,
    )
    assert "canary" not in f"{made!r}{made.diff()}{made.env}"
    made.write()
    assert config(tmp_path).with_name("env").read_text() == "PLAIN=other\n"
    known = {"PLAIN": "other", "keyring:KEY": "canary", **environ}
    assert known_values(read_present(config(tmp_path)), environ) == known
    made.undo()
    assert keyring.names(environ) == {}
    assert config(tmp_path).read_text() == WRITTEN
    assert known_values(read_present(config(tmp_path)), environ) == environ


def test_references_are_found_by_name_and_what_a_client_would_ask_for_is_one() -> None:
    entry = {"args": ["${A}", "$${B}", "${C:-default}", "${workspaceFolder}"], "env": {"X": "a${env:D}b${A}"}}
    assert moved_secrets.references(entry) == ["A", "D"]
    asked = moved_secrets.asked_as_variables({"env": {"K": "${input:perplexity-key}"}})
    assert asked == {"env": {"K": "${PERPLEXITY_KEY}"}}
    assert variable_of("9-lives") == "_9_LIVES"


# --- variables that servers share, divided among them --------------------------------------------------------


def case(name: str) -> str:
    return (Path(__file__).parent / "cases" / f"own_variables_{name}").read_text()


def test_each_server_gets_its_own_variables_and_nothing_else_changes(tmp_path: Path) -> None:
    path, env = put(tmp_path / "mcpd.json", case("before.json")), put(tmp_path / "env", case("kept.env"))
    before = load(path, {})
    made = moved_secrets.with_own_variables(read_present(path), {})
    assert "tok-1" not in made.draft.diff()
    made.draft.write()
    assert path.read_text() == case("after.json")
    lines = env.read_text().splitlines()
    assert lines[:5] == ["# tokens", "", "# mine", "BOTH=bot-1", "HTTPS_PROXY=http://p"]
    own = "A__API_TOKEN=tok-1 B__API_TOKEN=tok-1 B__OTHER=oth-1 C__BOTH=bot-1 C__KEY=key-1"
    assert sorted(lines[5:]) == own.split()
    assert made.unused == ("HTTPS_PROXY",)
    after = load(path, {})
    for name, server in before.mcp_servers.items():
        assert (after.mcp_servers[name].args, after.mcp_servers[name].env) == (server.args, server.env)
    assert moved_secrets.with_own_variables(read_present(path), {}).draft.diff() == ""


# --- what `mcpd add` is told of a server: commands, urls and packages, and which version they are p ----------


@cases("words", "name", "entry")
def test_words_name_a_server(words: list[str], name: str, entry: dict[str, object] | None) -> None:
    cut = words.index("--") if "--" in words else len(words)
    found = wanted(words[:cut], words[cut + 1 :])
    assert found.name == name.replace("mcp-thing", "mcp_thing")
    assert entry is None or found.entry == entry


def test_a_server_is_found_in_the_fenced_json_of_a_whole_page_with_variables_for_placeholders() -> None:
    env = {"API_KEY": "YOUR_API_KEY_HERE", "TOKEN": "<token>", "REGION": "your-region", "KEY": "s3cret"}
    members = f'   "mcpServers": {json.dumps({"fetch": {"command": "uvx", "env": env}})}'
    page = f"### Install\n\n```bash\nuvx fetch\n```\n\n1. Then write:\n\n   ```json\n{members}\n   ```\n"
    entry = wanted(["-"], (), lambda: page).entry
    assert entry == {"command": "uvx", "env": {**env, "API_KEY": "${API_KEY}", "TOKEN": "${TOKEN}"}}


@cases("words", "command", "says")
def test_words_that_name_none_are_told_what_to_write(words: list[str], command: list[str], says: str) -> None:
    with pytest.raises(WordsError, match=says):
        wanted(words, command)


@cases("command", "args", "loose")
def test_packages_are_pinned_to_the_version_that_is_found(
    command: list[str], args: list[str], loose: list[str]
) -> None:
    server = wanted(["x"], command)
    found = with_versions(server, lambda package: None if package.name == "unknown" else "1.2.3")
    assert (found.entry["args"], list(found.loose)) == (args, loose)


def test_pairs_are_told_apart_and_an_error_repeats_no_value() -> None:
    assert pairs(["A=b=c", "D="], "=", "key") == {"A": "b=c", "D": ""}
    assert pairs(["Authorization: Bearer x:y"], ":", "header") == {"Authorization": "Bearer x:y"}
    with pytest.raises(WordsError) as caught:
        pairs(["secret"], "=", "key")
    assert "secret" not in str(caught.value)


ORDERS = {
    "pypi": "1.0.dev1 1.0a1.dev2 1.0a1 1.0b2 1.0rc1 1.0 1.0.post1 1.0.1 1.9 1.10 2026.1 1!0.1",
    "npm": "1.0.0-0 1.0.0-9 1.0.0-10 1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2"
    " 1.0.0-beta.11 1.0.0-rc.1 1.0.0 1.0.1 1.9.0 1.10.0",
}


@pytest.mark.parametrize("source", ORDERS)
def test_each_version_is_newer_than_those_before_it_alone(source: str) -> None:
    versions = ORDERS[source].split()
    for (at, one), (place, other) in product(enumerate(versions), repeat=2):
        assert is_newer(one, other, source) is (at > place), (one, other)


@cases("one", "other", "source")
def test_spellings_of_a_version_are_one(one: str, other: str, source: str) -> None:
    assert not is_newer(one, other, source)
    assert not is_newer(other, one, source)


PARTS = (
    st.sampled_from(["", "1!"]),
    st.lists(st.integers(0, 11).map(str), min_size=1, max_size=3).map(".".join),
    st.sampled_from(["", "a1", "b2", "rc1", "rc10"]),
    st.sampled_from(["", ".post1", ".post2"]),
    st.sampled_from(["", ".dev1", ".dev11"]),
)
VERSIONS = st.tuples(*PARTS).map("".join)


@given(VERSIONS, VERSIONS)
def test_pythons_order_is_that_of_its_own_tools(one: str, other: str) -> None:
    assert is_newer(one, other, "pypi") == (Version(one) > Version(other))
