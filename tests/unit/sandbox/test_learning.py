"""The smallest entry for what a server was seen to use, and the notes on what is left out."""

from __future__ import annotations

import msgspec
import pytest

from daemon.config.sandbox_keys import SandboxFilesystem, SandboxMode, SandboxNetwork, SandboxRules
from daemon.sandbox.learning import Learned, Observations, Use, learned
from daemon.sandbox.policy import Access, Policy
from tests.unit.cases import cases

READ, WRITE, SEE, CONNECT, DIRECTORY, GONE = Use.READ, Use.WRITE, Use.SEE, Use.CONNECT, Use.DIRECTORY, Use.GONE
HOME = "/home/ada"
POLICY = Policy(
    command="/usr/bin/x",
    mode=SandboxMode.STRICT,
    home=HOME,
    cwd=HOME,
    links={},
    places={f"{HOME}/.ssh": Access.HIDDEN, f"{HOME}/.nvm": Access.READ, f"{HOME}/work": Access.WRITE},
    own={f"{HOME}/.npm": "/data/npm"},
    present=set(),
    data="/data/data",
)


def lesson(paths: dict[str, Use], mode: SandboxMode = SandboxMode.STRICT) -> Learned:
    """What is learned of these paths; `~` is the home directory."""
    seen = {HOME + path[1:] if path.startswith("~") else path: use for path, use in paths.items()}
    return learned(Observations(paths=seen), msgspec.structs.replace(POLICY, mode=mode))


def lines(paths: dict[str, Use], mode: SandboxMode = SandboxMode.STRICT) -> dict[str, str]:
    return {f"{line.key} {line.value}": line.why for line in lesson(paths, mode).lines}


def test_what_the_mode_allows_is_no_line() -> None:
    allowed = {
        "/usr/lib/libc.so": READ,
        "/etc/passwd": READ,
        "~/.nvm/node": READ,
        "~/work/a": WRITE,
        "~/.npm/x": WRITE,
        "/tmp/scratch": WRITE,
        "/run/systemd/resolve/resolv.conf": READ,
    }
    assert lesson(allowed) == Learned(SandboxMode.STRICT, (), ())
    assert lesson(allowed).entry == "strict"
    assert lines({"~/notes/a": READ, "~/notes/b": READ}, SandboxMode.HOME) == {}


def test_what_the_entry_names_below_tmp_and_was_there_before_is_a_line() -> None:
    used = {
        "/tmp/given/a": READ,
        "/tmp/given/b": READ,
        "/tmp/kept/c": WRITE,
        "/tmp/one": WRITE,
        "/tmp/other": READ,
        "/tmp": READ | DIRECTORY,
    }
    named = {"/tmp", "/tmp/given", "/tmp/kept", "/tmp/one", f"{HOME}/work"}
    found = learned(Observations(paths=used, named=named), POLICY)
    assert [f"{line.key} {line.value}" for line in found.lines] == [
        "allowRead /tmp/given",
        "allowWrite /tmp/kept",
        "allowWrite /tmp/one",
    ]
    assert found.notes == ()
    # A file among the arguments is shown anyway, and what is secret stays so.
    policy = msgspec.structs.replace(POLICY, places={"/tmp/arg": Access.READ, "/tmp/mcpd": Access.HIDDEN})
    seen = Observations(
        paths={"/tmp/arg": READ, "/tmp/mcpd/state/key": READ}, named={"/tmp/arg", "/tmp/mcpd/state"}
    )
    found = learned(seen, policy)
    assert (found.lines, len(found.notes)) == ((), 1)


def test_a_directory_stands_for_files_that_lie_together() -> None:
    files = {f"~/notes/{name}": READ for name in ("index", "b", "c")}
    assert lines(files) == {"allowRead ~/notes": "read 3 files there, first index"}
    assert lines({"~/notes/index": READ}) == {"allowRead ~/notes/index": "read it"}
    assert lines({"~/notes": READ | DIRECTORY}) == {"allowRead ~/notes": "listed it"}


def test_a_written_file_opens_its_directory_since_programs_replace_files() -> None:
    assert lines({"~/notes/2026/a": WRITE, "~/notes/2026/b": READ}) == {
        "allowWrite ~/notes/2026": "wrote 1 file there, first a"
    }
    assert lines({"~/notes": WRITE | DIRECTORY}) == {"allowWrite ~/notes": "wrote it"}


def test_a_directory_of_one_day_is_opened_by_the_one_above_that_the_next_day_needs() -> None:
    for day in ("2026-11-29", "run-2026-11-29T12", "2026-11-29/noon"):
        assert list(lines({f"~/app/logs/{day}/a": WRITE})) == ["allowWrite ~/app/logs"]
    assert list(lines({"~/2026-11-29/a": WRITE})) == ["allowWrite ~/2026-11-29/a"]


@pytest.mark.parametrize("holder", ["~", "~/.config", "~/.local/share", "/srv"])
def test_no_line_opens_a_directory_that_programs_share(holder: str) -> None:
    use = dict.fromkeys([f"{holder}/one", f"{holder}/two", f"{holder}/three"], WRITE)
    assert set(lines(use)) == {f"allowWrite {each}" for each in use}
    assert lines({holder: READ | DIRECTORY}) == {}
    found = lesson({f"{holder}/gone": WRITE | GONE})
    assert found.lines == ()
    assert found.notes == (f"it wrote {holder}/gone, where other programs' files are: not opened",)


def test_three_directories_next_to_each_other_become_their_parent() -> None:
    use = {f"~/src/{name}/x/file": WRITE for name in ("a", "b")}
    assert set(lines(use)) == {"allowWrite ~/src/a/x", "allowWrite ~/src/b/x"}
    use = {f"~/src/{name}/file": WRITE for name in ("a", "b")}
    assert set(lines(use)) == {"allowWrite ~/src/a", "allowWrite ~/src/b"}
    use = {f"~/src/{name}/file": WRITE for name in ("a", "b", "c")} | {"~/src/a/deep/er/f": WRITE}
    assert lines(use) == {"allowWrite ~/src": "wrote 4 files there, first a/file"}


def test_directories_on_the_way_and_files_that_are_gone_need_nothing() -> None:
    use = {"~": SEE | DIRECTORY, "~/a": SEE | DIRECTORY, "~/a/b": READ, "~/c/lock": READ | GONE}
    assert lines(use) == {"allowRead ~/a/b": "read it"}
    assert lines({"~/c": SEE | DIRECTORY}) == {"allowRead ~/c": "checked whether the path exists"}
    use = {"~/c/.tmp1": WRITE | GONE, "~/c/x": WRITE}
    assert lines(use) == {"allowWrite ~/c": "wrote 2 files there, first x"}
    assert lines({"~/c/.tmp1": WRITE | GONE}) == {"allowWrite ~/c": "wrote 1 file there, first .tmp1"}


def test_a_secret_is_told_of_and_never_a_line() -> None:
    use = {"~/.ssh/config": READ, "~/.ssh/id": READ | WRITE, "~/.ssh": SEE | DIRECTORY}
    for mode in (SandboxMode.STRICT, SandboxMode.HOME):
        found = lesson(use, mode)
        assert found.lines == ()
        assert found.notes == ("it read ~/.ssh/config, which is secret: add allowRead yourself to allow that",)
    assert lesson({"~/.ssh": SEE | DIRECTORY}).notes == ()


@cases("name")
def test_a_name_that_an_entry_would_read_otherwise_is_told_of_and_never_a_line(name: str) -> None:
    """A server makes a directory with such a name, and the entry would open another."""
    paths = {f"~/notes/{name}/a": WRITE, f"~/src/{name}/b": READ, "~/app/c": WRITE}
    assert list(lines(paths)) == ["allowWrite ~/app"]
    assert len(lesson(paths).notes) == 2


def test_sockets_and_places_of_programs_are_told_of() -> None:
    found = lesson({"/run/docker.sock": CONNECT, "/usr/lib/x/cache": WRITE})
    assert found.lines == ()
    assert found.notes == (
        "it connected to the socket /run/docker.sock: add allowRead yourself to allow that",
        "it wrote /usr/lib/x/cache, where other programs' files are: not opened",
    )


def test_a_server_connects_to_its_own_sockets() -> None:
    found = lesson({"/tmp/pw/browser.sock": WRITE | CONNECT, "~/.own/sock": WRITE | CONNECT})
    assert [f"{line.key} {line.value}" for line in found.lines] == ["allowWrite ~/.own"]
    assert found.notes == ()


def test_hosts_are_lines_and_what_went_round_the_proxy_is_told_of() -> None:
    observed = Observations(
        hosts={"api.github.com": 2, "pypi.org": 1},
        refused={"10.0.0.5": "not-public"},
        addresses={"140.82.121.4:443": 3},
        missed=2,
    )
    found = learned(observed, POLICY, ["pypi.org", "files.pythonhosted.org"])
    assert {line.value: line.why for line in found.lines} == {
        "pypi.org": "was asked for 1 time",
        "files.pythonhosted.org": "packages are installed from there",
        "api.github.com": "was asked for 2 times",
    }
    assert [note[:40] for note in found.notes] == [
        "it wanted 10.0.0.5: not-public; name it ",
        "it tried 140.82.121.4:443 3 times direct",
        "2 system calls could not be read: files ",
    ]


def test_the_entry_is_as_small_as_it_can_be() -> None:
    assert lesson({}, SandboxMode.HOME).entry == {"network": {"allowedDomains": []}}
    assert lesson({"~/.app/x": WRITE}, SandboxMode.HOME).entry == {
        "network": {"allowedDomains": []},
        "filesystem": {"allowWrite": ["~/.app"]},
    }
    assert lesson({"~/a/b": READ}).entry == {"mode": "strict", "filesystem": {"allowRead": ["~/a/b"]}}
    before = SandboxRules(
        filesystem=SandboxFilesystem(deny_read=("/srv",), allow_read=("/x",)),
        network=SandboxNetwork(denied_domains=("evil.com",)),
    )
    assert learned(Observations(), POLICY, before=before).entry == {
        "mode": "strict",
        "filesystem": {"denyRead": ["/srv"]},
        "network": {"deniedDomains": ["evil.com"]},
    }
