"""What is planned of servers that were found."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest

from daemon.config.parse import parse
from daemon.setup.clients.importing import ClientServers, ConfiguredServers, ImportPlan, find
from daemon.setup.clients.programs import PROGRAMS, ClientPlace, Machine
from daemon.setup.drafts import read_present
from tests.unit.cases import rows_of
from tests.unit.setup.machines import machine, put

KEY = "bk-7Qm2xV9bT4Zr8Lw1"


def planned_and_found(
    at: Path,
    *clients: str,
    files: dict[str, dict[str, Any]] | None = None,
    written: dict[str, Any] | None = None,
    kept: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
    keyring: bool = False,
) -> tuple[ImportPlan, ClientServers]:
    """The plan for clients with their own files, or with `mcpServers` written by name of the client."""
    here = machine(at, *clients, environ=environ)
    for client, servers in (files or {}).items():
        place = PROGRAMS[client].places(here)[0]
        put(place.path, {place.trail[0]: servers})
    findings = find(here, PROGRAMS.values())
    source = here.home / ".config" / "mcpd" / "mcpd.json"
    present = attrs.evolve(read_present(source), servers=written or {}, variables=kept or {})
    made = ImportPlan(findings, present, here.environ, keyring=keyring)
    return made, findings


def planned(at: Path, *clients: str, **given: Any) -> ImportPlan:
    return planned_and_found(at, *clients, **given)[0]


def clients_of(plan: ImportPlan) -> dict[str, list[str]]:
    return {server.name: [origin.program.name for origin in server.origins] for server in plan.servers}


def test_a_server_that_many_clients_have_is_one(tmp_path: Path) -> None:
    made = planned(tmp_path, "claude-code", "codex", "opencode", "gemini")
    found = clients_of(made)
    everywhere = ["claude-code", "codex", "opencode", "gemini"]
    assert found["time"] == found["brave-search"] == everywhere
    assert found["files"] == ["claude-code", "gemini"]
    # Codex names a variable that is set nowhere: none of the others' tokens is taken for its value.
    assert found["notion"] == ["claude-code", "opencode", "gemini"]
    assert found["notion-2"] == ["codex"]
    entries = {server.name: server.entry for server in made.servers}
    assert entries["brave-search"]["env"] == {"BRAVE_API_KEY": "${BRAVE_SEARCH__BRAVE_API_KEY}"}
    assert entries["notion"]["headers"] == {"Authorization": "Bearer ${NOTION__TOKEN}"}
    assert made.variables["BRAVE_SEARCH__BRAVE_API_KEY"] == KEY


def with_local(at: Path, entry: dict[str, Any], *directories: str) -> Machine:
    """A machine on which Claude Code has a server in these directories of the home directory, in each alone."""
    here = machine(at)
    projects = {f"{here.home}/{each}": {"mcpServers": {"a": entry}} for each in directories}
    put(here.home / ".claude.json", {"projects": projects})
    return here


def test_a_server_of_some_directories_is_for_each_of_them_and_mcpd_has_it_there_only(tmp_path: Path) -> None:
    entry = {"command": "x"}
    here = with_local(tmp_path, entry, "one", "two")
    [both] = planned(tmp_path).servers
    assert both.entry["workspaces"] == [f"{here.home}/one", f"{here.home}/two"]
    with_local(tmp_path, entry, "one", "two", "three")
    old, new = planned(tmp_path, written={"a": both.entry}).servers
    assert (old.name, old.is_there) == ("a", True)
    assert (new.name, new.is_there, new.entry["workspaces"]) == ("a-2", False, [f"{here.home}/three"])
    known = ConfiguredServers(servers={"a": both.entry}).lookup(PROGRAMS["claude-code"], here)
    places = [place for place in PROGRAMS["claude-code"].places(here) if place.scope == "local"]
    found = {place.trail[1].rpartition("/")[2]: known(place, "a", entry) for place in places}
    assert found == {"proj": None, "one": "a", "two": "a", "three": None}
    everywhere = ConfiguredServers(servers={"b": {"command": "x", "share": "workspace"}})
    assert {everywhere.lookup(PROGRAMS["claude-code"], here)(place, "a", entry) for place in places} == {"b"}


def test_no_secret_is_left_in_an_entry_or_shown(tmp_path: Path) -> None:
    made = planned(tmp_path, *PROGRAMS)
    for secret in ("bk-7Qm2", "nt-4hT8", "ghx-9Kd3"):
        assert secret not in repr([server.entry for server in made.servers])
        assert secret not in repr(made)
        assert any(secret in value for value in made.variables.values())


def test_another_version_and_another_token_stay_apart(tmp_path: Path) -> None:
    def server(version: str, key: str) -> dict[str, Any]:
        return {"command": "npx", "args": [f"pkg@{version}"], "env": {"API_KEY": key}}

    files = {
        "cursor": {"Pkg": server("1.0.0", "first-Qx7Rm2")},
        "windsurf": {"pkg": server("2.0.0", "first-Qx7Rm2")},
        "lmstudio": {"pkg": server("1.0.0", "other-Zt5Kw9")},
    }
    made = planned(tmp_path, files=files)
    found = [(each.name, each.beside, each.entry["env"]["API_KEY"]) for each in made.servers]
    assert found == [
        ("pkg", None, "${PKG__API_KEY}"),
        ("pkg-2", "pkg", "${PKG_2__API_KEY}"),
        ("pkg-3", "pkg", "${PKG_3__API_KEY}"),
    ]
    assert [*made.variables.values()] == ["first-Qx7Rm2", "first-Qx7Rm2", "other-Zt5Kw9"]


def test_what_mcpd_has_pinned_is_what_a_client_has_without_a_version(tmp_path: Path) -> None:
    def server(package: str) -> dict[str, Any]:
        return {"command": "npx", "args": ["-y", package, "/srv"]}

    files = {"cursor": {"a": server("pkg")}, "windsurf": {"a": server("pkg@1.0.0")}}

    def there(written: dict[str, Any]) -> list[tuple[str, bool]]:
        made = planned(tmp_path, files=files, written=written)
        return [(each.name, each.is_there) for each in made.servers]

    pinned, loose = server("pkg@2.0.0"), server("pkg@latest")
    assert there({"b": pinned}) == [("b", True), ("a", False)]
    # Where mcpd has both, each is its own.
    for both in ({"b": pinned, "c": loose}, {"c": loose, "b": pinned}):
        assert there(both) == [("c", True), ("a", False)]
    here, program = machine(tmp_path), PROGRAMS["cursor"]
    known = ConfiguredServers(servers={"b": pinned}).lookup(program, here)
    place = program.places(here)[0]
    assert [known(place, "a", server(each)) for each in ("pkg", "pkg@1.0.0")] == ["b", None]


def test_a_variable_of_this_shell_is_kept_for_services_under_a_name_of_the_servers_own(tmp_path: Path) -> None:
    made = planned(tmp_path, "codex", environ={"NOTION_TOKEN": "nt-1"})
    assert made.variables["NOTION__NOTION_TOKEN"] == "nt-1"
    assert made.servers[2].secrets == ("NOTION__NOTION_TOKEN",)
    assert made.servers[2].entry["headers"] == {"Authorization": "Bearer ${NOTION__NOTION_TOKEN}"}
    # A shell that lacks the variable finds the same server.
    written = {each.name: each.entry for each in made.servers}
    assert not planned(tmp_path, "codex", written=written, kept=dict(made.variables)).added


def test_a_server_is_known_again_where_only_some_of_its_variables_are_set(tmp_path: Path) -> None:
    files = {"cursor": {"a": {"command": "x", "env": {"USER": "${env:USER_A}", "KEY": "${env:KEY_A}"}}}}
    written = {"a": {"command": "x", "env": {"USER": "${A__USER_A}", "KEY": "${A__KEY_A}"}}}
    kept = {"A__USER_A": "ada", "A__KEY_A": "k-1"}
    assert not planned(tmp_path, files=files, written=written, kept=kept, environ={"USER_A": "ada"}).added


LOADED = dict(rows_of(Path(__file__), "loaded"))
"""Variables that would have their way with the daemon; each looks like a secret."""


def test_what_loaders_and_interpreters_obey_stays_in_the_entry(tmp_path: Path) -> None:
    servers = {"one": {"command": "npx", "env": {**LOADED, "API_TOKEN": KEY}}}
    made = planned(tmp_path, files={"cursor": servers})
    assert made.servers[0].entry["env"] == {**LOADED, "API_TOKEN": "${ONE__API_TOKEN}"}
    assert made.variables == {"ONE__API_TOKEN": KEY}


def test_only_what_is_a_reference_to_its_client_is_one_afterwards(tmp_path: Path) -> None:
    """A Cursor server's literal text got the token of another one."""
    texts = ["${API_TOKEN}", "${file:/etc/hosts}", "{env:API_TOKEN}", "$API_TOKEN", "${API_TOKEN:-x}", "${"]
    nice = {"command": "npx", "args": ["nice"], "env": {"API_TOKEN": KEY}}
    thief = {"command": "npx", "args": ["thief", *texts], "env": {"X": "${API_TOKEN}", "Y": "${env:API_TOKEN}"}}
    environ = {"API_TOKEN": "of-the-shell-9Zq"}
    made = planned(tmp_path, files={"cursor": {"nice": nice, "thief": thief}}, environ=environ)
    variables = {**made.variables, **environ}
    text = json.dumps({"mcpServers": {each.name: each.entry for each in made.servers}})
    read = parse(text, source="mcpd.json", environ=variables).mcp_servers["thief"]
    assert read.args == ("thief", *texts)
    assert read.env == {"X": "${API_TOKEN}", "Y": environ["API_TOKEN"]}
    # As often as it is looked for, it is the same server.
    written = {each.name: each.entry for each in made.servers}
    again = {"files": {"cursor": {"nice": nice, "thief": thief}}, "kept": dict(made.variables)}
    assert not planned(tmp_path, written=written, environ=environ, **again).added
    # Claude Code knows ${NAME} as mcpd does.
    made = planned(tmp_path, files={"claude-code": {"its": thief}}, environ=environ)
    its = next(each for each in made.servers if each.name == "its")
    assert its.entry["args"][1] == its.entry["env"]["X"] == "${ITS__API_TOKEN}"


def boxed(**more: object) -> dict[str, Any]:
    return {"command": "npx", "args": [str(sorted(more.items()))], **more}


BOXED = {
    "boxed": boxed(sandboxEnabled=True),
    "ruled": boxed(sandbox={"network": {}}),
    "open": boxed(sandboxEnabled=False, sandbox={"network": {}}),
    "off": boxed(sandbox="off"),
}
SANDBOX_KEYS = ("sandboxEnabled", "sandbox")


def sandboxes(servers: Iterable[Any]) -> dict[str, dict[str, Any]]:
    entries = {each.name if hasattr(each, "name") else each.origin.name: each.entry for each in servers}
    return {name: {key: entry[key] for key in SANDBOX_KEYS if key in entry} for name, entry in entries.items()}


def test_a_sandbox_is_taken_along_and_what_mcpd_lacks_of_it_is_said(tmp_path: Path) -> None:
    network = {"allowedDomains": ["a.example"], "allowUnixSockets": ["/run/x"]}
    files = {"allowWrite": ["${workspaceFolder}/out", "data"], "wanted": True}
    servers = {
        **BOXED,
        "full": boxed(sandboxEnabled=True, sandbox={"network": network, "filesystem": files, "x": 1}),
    }
    made = planned(tmp_path, files={"vscode": servers})
    found = sandboxes(made.servers)
    assert found == {
        "boxed": {"sandboxEnabled": True},
        "ruled": {"sandbox": {"network": {}}},
        "open": {"sandboxEnabled": False, "sandbox": {"network": {}}},
        "off": {"sandbox": "off"},
        "full": {
            "sandboxEnabled": True,
            "sandbox": {
                "network": {"allowedDomains": ["a.example"]},
                "filesystem": {"allowWrite": ["${workspaceFolder}/out", "data"]},
            },
        },
    }
    [full] = [each for each in made.servers if each.name == "full"]
    lost = {note.key for note in full.notes if note.lost}
    assert lost == {"sandbox.network.allowUnixSockets", "sandbox.filesystem.wanted", "sandbox.x"}
    text = json.dumps({"mcpServers": {each.name: each.entry for each in made.servers}})
    confined = parse(text, source="x", environ={"HOME": "/home/ada"}).mcp_servers
    assert [name for name, server in confined.items() if server.confined] == ["boxed", "ruled", "full"]


def test_the_rules_of_all_sandboxes_of_a_file_count_for_those_that_have_none(tmp_path: Path) -> None:
    place = PROGRAMS["vscode"].places(machine(tmp_path))[0]
    common = {"network": {"allowedDomains": ["a.example"]}}
    put(place.path, {"sandbox": common, "servers": {**BOXED, "plain": {"command": "x"}}})
    found = sandboxes(find(machine(tmp_path), [PROGRAMS["vscode"]]).servers)
    assert found["boxed"] == {"sandboxEnabled": True, "sandbox": common}
    assert (found["ruled"], found["plain"]) == ({"sandbox": {"network": {}}}, {})


def test_a_project_does_not_take_its_servers_out_of_the_users_sandbox(tmp_path: Path) -> None:
    here = machine(tmp_path)
    place = next(each for each in PROGRAMS["vscode"].places(here) if each.scope == "workspace")
    servers = {
        **BOXED,
        "mode": boxed(sandbox={"mode": "off"}),
        "near": boxed(sandbox={"filesystem": {"allowRead": ["x"]}}),
    }
    put(place.path, {place.trail[0]: servers})
    servers_found = find(here, [PROGRAMS["vscode"]]).servers
    found = sandboxes(servers_found)
    assert (found["open"], found["off"], found["mode"]) == ({"sandbox": {"network": {}}}, {}, {})
    assert found["boxed"] == {"sandboxEnabled": True}
    lost = {each.origin.name: [note.key for note in each.notes if note.lost] for each in servers_found}
    outside = {"open": ["sandboxEnabled"], "off": ["sandbox"], "mode": ["sandbox"], "boxed": []}
    assert {name: lost[name] for name in outside} == outside
    # Its relative paths begin in the project.
    entries = {each.origin.name: each.entry for each in servers_found}
    assert (entries["near"].get("cwd"), entries["boxed"].get("cwd")) == (str(here.directory), None)


def test_without_sandboxes_here_a_sandboxed_server_stays_unless_it_is_named(tmp_path: Path) -> None:
    planned(tmp_path, files={"vscode": BOXED})
    here = attrs.evolve(machine(tmp_path), no_sandbox=lambda: "no bwrap. `install it`")
    found = find(here, [PROGRAMS["vscode"]])
    assert [each.origin.name for each in found.servers] == ["open", "off"]
    assert [each.origin.name for each in found.left] == ["boxed", "ruled"]
    assert "no bwrap. `install it`. It stays there" in found.left[0].why
    assert "--unsandboxed boxed" in found.left[0].why
    named = find(attrs.evolve(here, unsandboxed=frozenset({"boxed", "ruled"})), [PROGRAMS["vscode"]])
    assert not named.left
    found_now = sandboxes(named.servers)
    assert found_now["boxed"] == found_now["ruled"] == {"sandboxEnabled": False}


def test_a_sandboxed_server_of_a_client_gives_way_only_to_one_that_asks_for_a_sandbox(tmp_path: Path) -> None:
    here = machine(tmp_path)
    place = PROGRAMS["vscode"].places(here)[0]
    entry, alike = BOXED["boxed"], {"command": "npx", "args": BOXED["boxed"]["args"]}
    for ours, known in ((entry, "a"), (alike, None)):
        lookup = ConfiguredServers(servers={"a": ours}).lookup(PROGRAMS["vscode"], here)
        assert lookup(place, "boxed", entry) == known
        assert lookup(place, "boxed", alike) == "a"


def test_names_become_ones_that_mcpd_takes_and_stay_as_titles(tmp_path: Path) -> None:
    files = {"cursor": {"Brave Search": {"command": "x"}, "日本": {"command": "y"}, "time": {"command": "z"}}}
    made = planned(tmp_path, files=files, written={"time": {"command": "another"}})
    assert [each.name for each in made.servers] == ["brave-search", "server", "time-2"]
    assert [each.entry.get("title") for each in made.servers] == ["Brave Search", "日本", None]


@pytest.mark.parametrize(
    "entry", [{"command": "x", "args": "y"}, {"command": "x", "unheard": 1}, {"url": "nonsense"}]
)
def test_what_mcpd_would_refuse_is_left_and_the_others_are_taken(entry: dict[str, Any], tmp_path: Path) -> None:
    made = planned(tmp_path, files={"cursor": {"a": entry, "b": {"command": "b"}}})
    assert [each.name for each in made.servers] == ["b"]
    [left] = made.left
    assert left.origin.name == "a"
    assert left.why.startswith("cannot be used: ")


def test_what_is_known_of_a_server_is_written_and_it_is_the_same_server_afterwards(tmp_path: Path) -> None:
    files = {"cursor": {"p": {"command": "npx", "args": ["@playwright/mcp"]}}}
    [browser] = planned(tmp_path, files=files).servers
    assert browser.entry == {"command": "npx", "args": ["@playwright/mcp", "--isolated"], "share": "session"}
    assert [each.key for each in browser.known] == ["share", "args[1]"]
    assert browser.known[1].written("p").endswith("undo: `mcpd unset p 'args[1]'`")
    [again] = planned(tmp_path / "again", files=files, written={"p": browser.entry}).servers
    assert again.is_there


def test_an_imported_entry_does_not_say_how_far_its_server_is_trusted(tmp_path: Path) -> None:
    servers = {"a": {"command": "a", "trust": True}, "b": {"command": "b", "trust": "all"}}
    made = planned(tmp_path, files={"gemini": servers})
    assert [dict(server.entry) for server in made.added] == [{"command": "a"}, {"command": "b"}]
    assert [note.key for server in made.added for note in server.notes if note.lost] == ["trust"]


PUBLISHED: dict[str, Any] = {
    "command": "npx",
    "args": ["-y", "@a/weather@1.2.3"],
    "env": {"KEY": "${input:KEY}", "WEATHER_REGION": "us"},
    "sandbox": "home",
    "trust": "none",
    "origin": {"name": "io.example/weather", "version": "1.2.3"},
}


def test_an_entry_that_names_a_registrys_server_becomes_that_server(tmp_path: Path) -> None:
    asked: list[str] = []

    def registered(name: str) -> dict[str, Any]:
        asked.append(name)
        return PUBLISHED if name == "io.example/weather" else {}

    here = attrs.evolve(machine(tmp_path, "kiro"), registered=registered)
    entry = {"type": "registry", "headers": {"X": "1"}}
    put(here.directory / ".kiro/settings/mcp.json", {"mcpServers": {"io.example/theirs": entry}})
    put(here.home / ".junie/mcp/mcp.json", {"mcpServers": {"io.example/odd": entry}})
    findings = find(here, PROGRAMS.values())
    weather = next(each.entry for each in findings.servers if each.origin.name == "io.example/weather")
    # What is not answered is a variable, and the author of a project has no registry asked.
    assert weather == {
        **PUBLISHED,
        "env": {"KEY": "${KEY}", "WEATHER_REGION": "eu"},
        "headers": {},
        "timeouts": {"call": 60.0},
    }
    assert asked == ["io.example/weather", "io.example/odd"]
    assert {each.origin.name: each.why.rpartition(": ")[2] for each in findings.left} == {
        "io.example/theirs": "`mcpd add registry:io.example/theirs` adds it",
        "io.example/odd": "`mcpd add registry:io.example/odd` adds it",
    }
    made = ImportPlan(findings, read_present(tmp_path / "mcpd.json"), {})
    server = next(each for each in made.servers if each.name == "io-example-weather")
    assert (server.missing, server.entry["trust"], "headers" in server.entry) == (("KEY",), "none", False)


def test_a_server_of_vs_codes_gallery_is_what_its_entry_runs(tmp_path: Path) -> None:
    runs = {"command": "npx", "args": ["-y", "@a/thing@1.2.3"]}
    entry = {"type": "stdio", **runs, "gallery": "https://api.mcp.example", "version": "1.2.3"}
    (server,) = planned(tmp_path, files={"vscode": {"io.a/thing": entry}}).servers
    assert (server.name, server.entry) == ("io-a-thing", {**runs, "title": "io.a/thing"})


# --- references in imported entries --------------------------------------------------------------------------


SAYS = (
    *("${run:touch /tmp/x}", "${run:-touch /tmp/x}", "${keyring:gh}", "{env:run:touch /tmp/x}"),
    *("$${{env:run:id}", "${input:{env:run:id}}", "x ${run:id} $${run:id} ${:-$}{run:id}"),
)


def entry_for(client: str) -> dict[str, Any]:
    """An entry with these words in each of its texts, as a client writes one."""
    words = {f"V{number}": text for number, text in enumerate(SAYS)}
    if client == "opencode":
        return {"type": "local", "command": ["server", *SAYS], "environment": words}
    if client == "goose":
        entry = {"type": "stdio", "enabled": True, "name": "evil", "cmd": "server", "args": list(SAYS)}
        return {**entry, "envs": words}
    return {"command": "server", "args": list(SAYS), "env": words}


def written(place: ClientPlace, client: str) -> str:
    """The file of a client with that entry."""
    entry = entry_for(client)
    if place.path.suffix == ".toml":
        env = ", ".join(f"{name} = {json.dumps(text)}" for name, text in entry["env"].items())
        return f'[mcp_servers.evil]\ncommand = "server"\nargs = {json.dumps(entry["args"])}\nenv = {{{env}}}\n'
    made: Any = [{"name": "evil", **entry}] if client == "continue" else {"evil": entry}
    for key in reversed(place.trail):
        made = {key: made}
    return json.dumps(made)


@pytest.mark.parametrize("client", PROGRAMS)
def test_no_client_can_have_mcpd_run_a_command_or_read_the_keyring(client: str, tmp_path: Path) -> None:
    for number, place in enumerate(PROGRAMS[client].places(machine(tmp_path))):
        here = machine(tmp_path / str(number))
        own = PROGRAMS[client].places(here)[number]
        put(own.path, written(own, client))
        present = read_present(here.home / ".config" / "mcpd" / "mcpd.json")
        made = ImportPlan(find(here, PROGRAMS.values()), present, here.environ)
        [server] = made.servers
        environ = {**here.environ, **made.variables, "ENV_RUN_ID": "x"}
        config = parse(json.dumps({"mcpServers": {"s": server.entry}}), source="mcpd.json", environ=environ)
        read = config.mcp_servers["s"]
        assert read.late == (), place.path
        assert "\0" not in json.dumps([read.args, dict(read.env)])
        assert len(read.args) == len(read.env) == len(SAYS), place.path
        assert {SAYS[0], SAYS[2]} <= {*read.args, *read.env.values()}
