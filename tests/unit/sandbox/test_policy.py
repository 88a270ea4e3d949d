"""The places of a sandbox: secrets, the entry's words, links, programs and the view of a home directory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import attrs
import pytest

from daemon.config.config_model import WORKSPACE, EntryOrigin, Instance, Server
from daemon.config.sandbox_keys import (
    SandboxFilesystem,
    SandboxMode,
    SandboxNetwork,
    SandboxRules,
    sandbox_in_force,
)
from daemon.errors import CannotStart
from daemon.sandbox import bubblewrap, policy
from daemon.sandbox.bubblewrap import arguments, mounts
from daemon.sandbox.policy import SECRETS, Access, DaemonPlaces, Policy, resolve, table, unmade
from tests.unit.cases import cases


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "home"
    for directory in (".ssh", ".config/gh", ".config/app", ".local/bin", "src/out", "notes"):
        (made / directory).mkdir(parents=True)
    for file in (".ssh/id", ".netrc", ".profile", ".config/app/set.json", "src/main.py"):
        (made / file).write_text("x")
    return made


@pytest.fixture
def outside_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's directories count as if they were outside /tmp, which is emptied."""
    monkeypatch.setattr(bubblewrap, "table", lambda: {**table(), "empty": ()})


def policy_of(home: Path, *, workspace: str | None = None, mode: str = "home", **more: Any) -> Policy:
    """The policy of a server; `files` and `network` are its sandbox, everything else is its entry."""
    files = SandboxFilesystem(**{key: tuple(paths) for key, paths in more.pop("files", {}).items()})
    rules = SandboxRules(mode=SandboxMode(mode), filesystem=files, network=SandboxNetwork(allowed_domains=()))
    server = Server(**{"name": "s", "command": "/bin/sh", "confined": rules, **more})
    if workspace is not None:
        server = attrs.evolve(server, instance=Instance(label=f"{server.name}@w", workspace=workspace))
    around = DaemonPlaces(environ={"HOME": str(home)}, private=(str(home / "own" / "mcpd.sock"),))
    return resolve(server, rules, around, "/usr/bin:/bin")


def shown(policy: Policy) -> dict[str, str]:
    """The view of the home directory: what each place becomes."""
    found, size = dict[str, str](), len(policy.home) + 1
    for what, source, place in mounts(policy):
        if place.startswith(policy.home) and what != "dir":
            names = source.split("/") if what == "show" else [""]
            found |= {f"{place}/{name}"[size:].rstrip("/"): what for name in names}
    return found


def test_a_home_without_its_secrets_is_shown(home: Path) -> None:
    view = shown(policy_of(home))
    assert view["src"] == view[".profile"] == view[".config/app"] == view["notes"] == "show"
    assert not [path for path in view if path.startswith((".ssh", ".netrc", ".config/gh"))]
    assert view[".npm"] == view[".cache"] == view[".local/share/mcpd/servers/s/data"] == "write"


def test_a_secret_that_is_made_later_is_not_shown_either(home: Path) -> None:
    """Its directory is made anew, of the entries that are there at the start."""
    view = shown(policy_of(home))
    assert ".config" not in view
    assert ".local" not in view


def test_the_words_of_an_entry_are_resolved_before_they_count(home: Path) -> None:
    files = {"allow_write": ["src/../notes", f"{WORKSPACE}/x"], "allow_read": [str(home / ".ssh/id")]}
    made = policy_of(home, files=files)
    assert made.places[str(home / "notes")] is Access.WRITE
    assert made.places[str(home / ".ssh/id")] is Access.READ
    assert not [path for path in made.places if WORKSPACE in path]
    view = shown(made)
    assert (view["notes"], view[".ssh/id"]) == ("write", "read")
    assert ".ssh" not in view


def test_what_is_denied_within_what_is_allowed_stays_denied(home: Path) -> None:
    denied = {"deny_write": [str(home / "src/out")], "deny_read": [str(home / "src/main.py")]}
    made = policy_of(home, files={"allow_write": [str(home / "src")], **denied})
    steps, src = mounts(made), str(home / "src")
    inner = [("read", f"{src}/out", f"{src}/out"), ("read", "/dev/null", f"{src}/main.py")]
    assert steps.index(("write", src, src)) < min(map(steps.index, inner))


def own_file(home: Path) -> Path:
    """A file of the daemon's, as `policy_of` names it."""
    (home / "own").mkdir()
    (home / "own" / "mcpd.sock").write_text("")
    return home / "own"


def test_a_server_that_could_write_files_of_the_daemon_does_not_start(home: Path) -> None:
    """A mount over such a file is gone once it is written anew, and the next configuration is the server's."""
    own_file(home)
    with pytest.raises(CannotStart, match="a file or directory of mcpd") as caught:
        policy_of(home, files={"allow_write": [str(home)]})
    assert caught.value.reason.data["problem"] == "private"


def test_secrets_are_hidden_where_variables_of_the_daemon_say_that_they_are(home: Path) -> None:
    environ = {"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/src/", "CODEX_HOME": str(home / "notes")}
    environ |= {"CLAUDE_CONFIG_DIR": str(home), "DOCKER_CONFIG": "relative", "HISTFILE": "/dev/null"}
    environ |= {"KUBECONFIG": f"/srv/kube/one:{home}/src/two", "CARGO_HOME": "/srv/cargo"}
    around = DaemonPlaces.of(environ, home / "notes" / "mcpd.json")
    rules = sandbox_in_force(SandboxMode.HOME)
    assert rules is not None
    made = resolve(Server(name="s", command="/bin/sh", confined=rules), rules, around, "/usr/bin:/bin")
    for path in (".config/gh", ".codex", ".claude", "src/gh", "src/mcpd/secrets", "notes", "src/two"):
        assert made.places[str(home / path)] is Access.HIDDEN
    assert made.places["/srv/kube/one"] is made.places["/srv/cargo/credentials"] is Access.HIDDEN
    assert "/dev/null" not in made.places
    assert str(home) not in made.places  # which would hide everything


@pytest.mark.parametrize("mode", ["home", "strict"])
def test_a_program_in_a_secret_directory_is_shown_without_the_directory(home: Path, mode: str) -> None:
    program = home / ".docker" / "bin" / "tool"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    made = policy_of(home, command=str(program), mode=mode)
    assert (made.places[str(program)], made.places[str(home / ".docker")]) == (Access.READ, Access.HIDDEN)


@pytest.mark.parametrize("key", ["cwd", "workspace"])
def test_a_directory_with_files_of_the_daemon_is_read_and_not_written(home: Path, key: str) -> None:
    """As in a project with a configuration of its own. A view without the file outlasts its replacement."""
    own = own_file(home)
    (own / "code.py").write_text("")
    view = shown(policy_of(home, **{key: str(own)}))
    assert view["own/code.py"] == "show"
    assert "own" not in view
    assert "own/mcpd.sock" not in view
    assert policy_of(home, mode="strict", **{key: str(own)}).places[str(own)] is Access.READ


def test_a_workspace_within_a_secret_is_not_shown(home: Path) -> None:
    made = policy_of(home, workspace=str(home / ".ssh"), cwd=str(home / ".config/gh"))
    assert made.places[str(home / ".ssh")] is made.places[str(home / ".config/gh")] is Access.HIDDEN


def test_a_workspace_was_judged_without_links_so_a_link_in_its_place_prevents_the_start(home: Path) -> None:
    (home / "src" / "link").symlink_to(home / "notes")
    with pytest.raises(CannotStart, match="itself could have made the link"):
        policy_of(home, workspace=str(home / "src" / "link"))


@cases("files", "problem")
def test_a_path_that_is_not_there_or_leads_out_prevents_the_start(
    home: Path, files: dict[str, list[str]], problem: str
) -> None:
    (home / "src" / "link").symlink_to(home / ".ssh")
    (home / "notes" / "over").symlink_to(home / "src" / "link")
    with pytest.raises(CannotStart) as caught:
        policy_of(home, files=files, cwd=str(home), mode="strict")
    assert caught.value.reason.cause == "sandbox-unavailable"
    assert caught.value.reason.data["problem"] == problem


def test_a_server_that_writes_its_working_directory_makes_no_link_that_is_followed(home: Path) -> None:
    (home / "src" / "link").symlink_to(home / "notes")
    with pytest.raises(CannotStart, match="itself could have made"):
        policy_of(home, cwd=str(home / "src"), files={"allow_read": ["link"]})
    with pytest.raises(CannotStart, match="itself could have made"):
        policy_of(home, cwd=str(home / "src" / "link"), files={"allow_write": [str(home / "src")]})
    assert policy_of(home, cwd=str(home / "src"), files={"allow_read": ["link"]}, mode="strict").places[
        str(home / "notes")
    ]


def test_what_a_server_can_link_to_is_shown_neither_as_its_program_nor_as_its_python(home: Path) -> None:
    venv, secret = home / "src" / "venv", home / ".ssh"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("")
    (venv / "bin" / "python").symlink_to(secret / "of" / "python")
    (venv / "bin" / "server").write_text("")
    (venv / "bin" / "server").chmod(0o755)
    (home / "src" / "named").symlink_to(home / "notes" / "file")
    (home / "notes" / "file").write_text("")
    command, args = str(venv / "bin" / "server"), (str(home / "src" / "named"),)
    made = policy_of(home, command=command, args=args, files={"allow_write": [str(home / "src")]})
    assert made.places[str(secret)] is Access.HIDDEN
    made = policy_of(
        home, command=command, args=args, files={"allow_write": [str(home / "src")]}, mode="strict"
    )
    assert str(home / "notes" / "file") not in made.places
    program = secret / "program"
    program.write_text("")
    program.chmod(0o755)
    (home / "src" / "linked").symlink_to(program)
    linked = str(home / "src" / "linked")
    made = policy_of(home, command=linked, files={"allow_write": [str(home / "src")]})
    assert str(program) not in made.places
    assert str(program) in policy_of(home, command=linked).places


def test_a_denied_path_that_is_not_there_is_hidden_all_the_same(home: Path) -> None:
    assert policy_of(home, files={"deny_read": ["later"]}).places[str(home / "later")] is Access.HIDDEN


def test_the_data_of_an_instance_that_mcpd_0_1_0_confined_is_found(home: Path) -> None:
    made = policy_of(home, workspace=str(home / "src"))
    former = Path(made.data).with_name(hashlib.sha256(b"s@w").hexdigest()[:16])
    former.mkdir(parents=True)
    (former / "kept").write_text("")
    assert policy_of(home, workspace=str(home / "src")).data == made.data
    assert (Path(made.data) / "kept").exists()


def test_a_workspace_is_writable_unless_the_home_directory_lies_in_it(home: Path) -> None:
    made = policy_of(home, workspace=str(home / "src"))
    assert made.places[str(home / "src")] is Access.WRITE
    assert made.data.startswith(str(home / ".local/share/mcpd/servers/s/instances/"))
    # So that its data can follow a renamed server.
    renamed = policy_of(home, workspace=str(home / "src"), name="t")
    assert renamed.data == made.data.replace("/servers/s/", "/servers/t/")
    for wide in (str(home), str(home.parent), "/"):
        assert wide not in policy_of(home, workspace=wide).places


def test_the_data_of_a_sessions_instance_is_of_the_session_and_not_of_its_connections_number(
    home: Path,
) -> None:
    def data_of(label: str, session: str) -> str:
        return policy_of(home, instance=Instance(label=label, session=session)).data

    data = Path(data_of("s#1", "ann"))
    assert str(data) == data_of("s#2", "ann") != data_of("s#1", "bob")
    others = data.with_name(hashlib.sha256(b"s#1").hexdigest()[:16])
    others.mkdir(parents=True)
    assert data_of("s#1", "ann") == str(data)
    assert (data.exists(), others.exists()) == (False, True)


def test_the_caches_of_other_packages_are_others_and_follow_neither_a_version_nor_a_name(home: Path) -> None:
    """A cache could hold what a former entry of the name has put there in the place of a package."""

    def caches(*words: str, **entry: Any) -> str:
        made = policy_of(home, command="/bin/sh", args=("-c", "exec " + " ".join(words)), **entry)
        return made.own[str(home / ".npm")]

    first = caches("npx", "-y", "a@1.0.0")
    assert caches("npx", "-y", "a@2.0.0", "--more") == first
    assert caches("npx", "-y", "a@1.0.0", name="t") == first.replace("/servers/s/", "/servers/t/")
    others = (
        caches("npx", "-y", "b"),
        caches("uvx", "a"),
        caches("sh", identity="x"),
        caches("sh", identity="y"),
    )
    assert len({first, *others}) == 1 + len(others)


def test_a_working_directory_is_writable_as_in_vs_code_and_in_strict_mode_only_readable(home: Path) -> None:
    assert policy_of(home, cwd=str(home / "src")).places[str(home / "src")] is Access.WRITE
    assert policy_of(home, cwd=str(home / "src"), mode="strict").places[str(home / "src")] is Access.READ
    assert str(home) not in policy_of(home, cwd=str(home)).places


@pytest.mark.parametrize("mode", ["home", "strict"])
def test_tools_of_the_user_are_shown_in_a_directory_of_the_server_s_own(home: Path, mode: str) -> None:
    tools, pythons = home / ".local/share/uv/tools", home / ".local/share/uv/python"
    for tool in (tools / "black", pythons / "3.12.1"):
        (tool / "bin").mkdir(parents=True)
    (tools / "empty").mkdir()
    (tools / ".lock").write_text("")
    (tools / "odd").symlink_to(home / ".ssh")
    (pythons / "3.12").symlink_to(pythons / "3.12.1")
    made = policy_of(home, mode=mode)
    assert str(tools) in made.own
    assert {path for path, access in made.places.items() if access is Access.READ} >= {
        str(tools / "black"),
        str(pythons / "3.12"),
        str(pythons / "3.12.1"),
    }
    assert not {str(tools / each) for each in (".lock", "odd", "empty")} & set(made.places)
    steps, black = mounts(made), str(tools / "black")
    assert steps.index(("write", made.own[str(tools)], str(tools))) < steps.index(("read", black, black))
    assert ("read", str(pythons / "3.12.1"), str(pythons / "3.12")) in steps


def test_a_program_in_a_cache_of_the_user_s_is_shown(home: Path) -> None:
    program = home / ".cache/x/run"
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o755)
    assert policy_of(home, command=str(program)).places[str(program)] is Access.READ


def test_a_secret_within_a_cache_needs_no_mask_since_the_cache_is_another_one(home: Path) -> None:
    (home / ".cache/mozilla").mkdir(parents=True)
    assert ".cache/mozilla" not in shown(policy_of(home))


def test_strict_shows_the_program_its_environment_and_its_script(home: Path) -> None:
    venv = home / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("")
    (venv / "bin" / "python").symlink_to("/bin/sh")
    (home / ".local/bin/tool").symlink_to(venv / "bin" / "python")
    script = str(home / "src/main.py")
    made = policy_of(
        home, command=str(home / ".local/bin/tool"), args=(script, str(home / ".netrc")), mode="strict"
    )
    assert made.places[str(venv)] is made.places[script] is Access.READ
    assert made.places[str(home / ".netrc")] is Access.HIDDEN


def test_the_arguments_empty_what_is_others_and_end_with_the_directory(home: Path) -> None:
    made = policy_of(home, mode="strict", files={"allow_write": [str(home / "notes")]})
    words = arguments(mounts(made))
    text = " ".join(words)
    assert "--unshare-net" in words
    assert f"--tmpfs {home} " in text
    assert f"--bind {home}/notes {home}/notes" in text
    assert words.index("--die-with-parent") < words.index("--ro-bind")
    assert arguments()[-8:-3] == ["--dev-bind", "/", "/", "--proc", "/proc"]
    assert "--unshare-net" not in arguments()


@pytest.mark.parametrize("mode", ["home", "strict"])
def test_a_home_within_a_hidden_place_stays_and_nothing_is_put_into_hidden_places(
    tmp_path: Path, mode: str, outside_tmp: None
) -> None:
    """As under systemd, where the home directory is a state directory in one that nobody else reads."""
    state = tmp_path.resolve() / "state"
    home = state / "mcpd"
    (home / "tokens").mkdir(parents=True)
    (home / "tokens" / "first").touch()
    (state / "link").symlink_to("mcpd")
    files = {
        "deny_read": [str(each) for each in (state, state / "link", home / "tokens", home / "tokens/first")]
    }
    made = policy_of(home, mode=mode, files=files)
    steps = mounts(made)
    assert steps.index(("empty", "", str(state))) < steps.index(("own", "", str(home)))
    places = {place for _, _, place in steps}
    assert not {f"{state}/link", f"{home}/tokens", f"{home}/tokens/first"} & places
    assert ("write", made.data, made.data) in steps


def test_a_file_in_a_hidden_directory_is_not_masked_again(
    home: Path, tmp_path: Path, outside_tmp: None
) -> None:
    """Its directory is empty by then."""
    other = tmp_path.resolve() / "etc"
    other.mkdir()
    (other / "file").touch()
    made = policy_of(home, files={"deny_read": [str(other), str(other / "file")]})
    steps = mounts(made)
    assert ("empty", "", str(other)) in steps
    assert f"{other}/file" not in {place for _, _, place in steps}


def test_a_readable_place_around_the_home_directory_does_not_uncover_it(home: Path) -> None:
    made = policy_of(home, files={"allow_read": [str(home.parent)]})
    steps, around = mounts(made), str(home.parent)
    assert steps.index(("read", around, around)) < steps.index(("own", "", str(home)))


@cases("error", "problems")
def test_a_refusal_of_the_system_is_told_by_its_kind(error: str, problems: list[str]) -> None:
    """Of namespaces, the kind depends on this machine's settings."""
    assert unmade(error).reason.data["problem"] in problems


@pytest.mark.parametrize("error", ["Operation not permitted: 'unshare'", "Can't mount proc: not permitted"])
def test_what_the_systems_unit_forbids_is_told_as_such(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_refuser", lambda: policy._unit_or("namespaces"))
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/mcpd")
    assert unmade(error).reason.data["problem"] == "unit"


def test_every_place_of_the_table_is_relative_or_absolute_on_purpose() -> None:
    listed = table()
    assert all(each.startswith("/") for each in (*listed["machine"], *listed["empty"], *listed["kept"]))
    of_home = [each for name in SECRETS if name != "machine" for each in listed[name]]
    assert not [each for each in (*of_home, *listed["caches"], *listed["tools"]) if each.startswith("/")]
    assert len(of_home) == len(set(of_home))


def test_no_home_directory_prevents_the_start() -> None:
    rules = sandbox_in_force(SandboxMode.HOME)
    assert rules is not None
    with pytest.raises(CannotStart, match="no home directory"):
        resolve(Server(name="s", command="sh", confined=rules), rules, DaemonPlaces(), "/bin")


def test_without_a_network_only_caches_that_hold_something_are_mounted(home: Path) -> None:
    made = policy_of(home, mode="strict")
    inside = str(home / ".npm")
    assert inside not in made.own
    cache = Path(policy_of(home).own[inside])
    cache.mkdir(parents=True)
    assert inside not in policy_of(home, mode="strict").own
    (cache / "index").touch()
    assert policy_of(home, mode="strict").own[inside] == str(cache)
    assert inside in policy_of(home).own


@pytest.mark.parametrize("mode", ["home", "strict"])
def test_a_program_beside_the_home_is_shown(home: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in /home/linuxbrew: the directory of all homes is emptied."""
    monkeypatch.setattr(policy, "table", lambda: {**table(), "empty": (str(home.parent),)})
    installed = home.parent / "brew"
    (installed / "bin").mkdir(parents=True)
    (installed / "bin" / "node").touch(mode=0o755)
    made = policy_of(home, command=str(installed / "bin" / "node"), mode=mode)
    assert made.places[str(installed)] is Access.READ


BUNDLE = ".local/share/mcpd/bundles/one-0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("mode", ["home", "strict"])
def test_a_server_of_a_bundle_reads_its_own_and_no_other(home: Path, mode: str) -> None:
    for name in (BUNDLE, f"{BUNDLE[:-1]}c"):
        (home / name).mkdir(parents=True)
    origin = EntryOrigin(name="one", version="1", bundle=str(home / BUNDLE))
    policy = policy_of(home, mode=mode, origin=origin)
    assert policy.places[str(home / BUNDLE)] is Access.READ
    assert {path for path in shown(policy) if "bundles" in path} == {BUNDLE}
    assert shown(policy)[BUNDLE] == "read"
    assert "bundles" not in str(shown(policy_of(home, mode=mode)))


@pytest.mark.parametrize("bundle", [".ssh", ".ssh/mcpd/bundles", ".local/share/mcpd", BUNDLE])
def test_an_origin_uncovers_nothing_but_a_bundle(home: Path, bundle: str) -> None:
    (home / BUNDLE).parent.mkdir(parents=True)
    (home / BUNDLE).symlink_to(home / ".ssh")
    policy = policy_of(home, origin=EntryOrigin(name="one", version="1", bundle=str(home / bundle)))
    assert {path for path in shown(policy) if path.startswith((".ssh", ".local/share/mcpd/bundles"))} == set()
