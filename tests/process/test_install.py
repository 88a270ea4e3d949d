"""`make install`: nothing that the locks do not pin by hash, and nothing lost when it fails."""

import fcntl
import os
import re
import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from daemon.cli.table import help_table, purposes
from tests.waiting import run_to_end

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"
PYTHON = r"""#!/bin/sh
case "$*" in
  *_base_executable*) echo "$0" ;;
  "-m venv "*)
    for dir; do :; done
    mkdir -p "$dir/bin"
    cp "$0" "$dir/bin/python"
    test "$FAILS" != venv ;;
  "-m pip "*)
    echo "$* $('PREFIX/bin/mcpd' 2>/dev/null || echo none)" >>'ASKED'
    case " $* " in *" $FAILS "*) exit 1 ;; esac
    printf '#!/bin/sh\ntest "$1" != "%s" && echo %s\n' "${FAILS:-none}" "$RELEASE" >"${0%/*}/mcpd"
    chmod +x "${0%/*}/mcpd"
    mkdir -p "${0%/*}/../share/man/man1"
    touch "${0%/*}/../share/man/man1/mcpd.1" ;;
esac
"""
"""What `scripts/` asks of an interpreter, and of the one in an environment of its making."""


def locked(name: str) -> dict[str, str]:
    """What a lock pins, each with its version; a line without a hash is a fault."""
    entries = re.sub(r"\\\n", " ", (LOCKS / name).read_text()).splitlines()
    pins = [entry for entry in entries if entry and not entry.lstrip().startswith("#")]
    assert all("--hash=sha256:" in entry for entry in pins)
    return {
        found[1].lower(): found[2]
        for entry in pins
        if (found := re.match(r"([\w.-]+)(?:\[.*?\])?==(\S+)", entry))
    }


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Where mcpd is installed to, with a name that needs quoting."""
    return tmp_path / "my files"


@pytest.fixture
def python(tmp_path: Path, prefix: Path) -> Path:
    """An interpreter whose pip writes down what it is asked, and what the installed mcpd says meanwhile."""
    path = tmp_path / "python"
    path.write_text(PYTHON.replace("ASKED", str(tmp_path / "asked")).replace("PREFIX", str(prefix)))
    path.chmod(0o755)
    return path


def install(python: Path, prefix: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    asked = ["make", "install", f"PYTHON={python}", f"PREFIX={prefix}"]
    env = {**os.environ, **environment}
    return subprocess.run(asked, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)


def answer(prefix: Path) -> str:
    """What the mcpd that is installed says; an error if there is none."""
    return run_to_end([prefix / "bin" / "mcpd"], check=True).stdout.strip()


def kept(prefix: Path) -> set[str]:
    return {each.name for each in (prefix / "share" / "mcpd").iterdir()}


def current(prefix: Path) -> str:
    """The environment that the command leads into."""
    return (prefix / "bin" / "mcpd").resolve().parents[1].name


def test_it_installs_with_hashes_and_then_the_tree_without_asking_anybody(
    python: Path, prefix: Path, tmp_path: Path
) -> None:
    assert install(python, prefix, RELEASE="one").returncode == 0
    locks, tree = (tmp_path / "asked").read_text().splitlines()
    assert "--require-hashes" in locks
    assert all(f"--requirement=requirements/{name}.txt" in locks for name in ("runtime", "build"))
    assert "--no-deps --no-build-isolation ." in tree
    assert answer(prefix) == "one"
    assert re.fullmatch(r"venv-\d+\.\d+\.\d+-\d{8}T\d+", current(prefix))


@pytest.mark.parametrize("fails", ["venv", "--require-hashes", "--no-deps", "--version", "--help"])
def test_an_upgrade_that_fails_leaves_what_was_there(python: Path, prefix: Path, fails: str) -> None:
    assert install(python, prefix, RELEASE="one").returncode == 0
    before = kept(prefix)
    assert install(python, prefix, RELEASE="two", FAILS=fails).returncode != 0
    assert answer(prefix) == "one"
    assert kept(prefix) == before


def test_the_old_one_works_until_the_new_one_does_and_is_kept(
    python: Path, prefix: Path, tmp_path: Path
) -> None:
    """A daemon that runs imports what it needs late, from the environment that it was started in."""
    released = []
    for release in ("one", "two", "three"):
        assert install(python, prefix, RELEASE=release).returncode == 0
        assert answer(prefix) == release
        released.append(current(prefix))
    meanwhile = [line.rpartition(" ")[2] for line in (tmp_path / "asked").read_text().splitlines()]
    assert meanwhile == ["none", "none", "one", "one", "two", "two"]
    assert kept(prefix) == set(released[-2:])


def test_man_finds_the_pages_of_the_newest(python: Path, prefix: Path) -> None:
    """`man` looks in PREFIX/share/man for what is in PREFIX/bin; no link dangles."""
    pages = prefix / "share" / "man" / "man1"
    pages.mkdir(parents=True)
    (pages / "mcpd-gone.1").symlink_to(prefix / "share" / "mcpd" / "venv-0.0.1" / "mcpd-gone.1")
    (pages / "other.1").touch()
    assert install(python, prefix, RELEASE="one").returncode == 0
    assert {page.name for page in pages.iterdir()} == {"other.1", "mcpd.1"}
    assert (pages / "mcpd.1").resolve().is_relative_to(prefix / "share" / "mcpd" / current(prefix))


def test_two_at_once_do_not_remove_each_others(python: Path, prefix: Path) -> None:
    houses = prefix / "share" / "mcpd"
    houses.mkdir(parents=True)
    held = os.open(houses, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = install(python, prefix, RELEASE="one")
    finally:
        os.close(held)
    assert done.returncode != 0
    assert "another `make install`" in done.stderr
    assert not kept(prefix)


@pytest.mark.parametrize("lock", ["runtime.txt", "build.txt"])
def test_what_is_installed_is_what_is_tested(lock: str) -> None:
    tested = locked("dev.txt")
    assert {name: tested.get(name) for name in locked(lock)} == locked(lock)


def test_the_extra_for_applications_pins_what_the_lock_does() -> None:
    """`make lock` writes both; pipx and uv read the extra, which has no hashes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pinned = project["project"]["optional-dependencies"]["locked"]
    lock = (LOCKS / "runtime.txt").read_text()
    assert pinned == [line.rstrip(" \\") for line in lock.splitlines() if re.match(r"\w", line)]


# --- the manual pages are those of the commands as they are, and `man` has nothing to say again --------------


PAGES = sorted((ROOT / "man").iterdir())


def test_they_are_what_the_parsers_say(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "scripts" / "manpages"))["main"](tmp_path)
    made = {page.name: page.read_text() for page in tmp_path.iterdir()}
    assert made == {page.name: page.read_text() for page in PAGES}, "type `make man`"
    assert set(made) == {"mcpd.1", *(f"mcpd-{command}.1" for command in purposes(help_table()))}


CHECKS = {"mandoc": ["-T", "lint", "-W", "error"], "man": ["--local-file", "--warnings", "--encoding=UTF-8"]}


@pytest.mark.parametrize("pages", [PAGES[::9], pytest.param(PAGES, marks=pytest.mark.nightly)], ids=len)
@pytest.mark.parametrize("program", [name for name in CHECKS if shutil.which(name)])
def test_they_are_well_formed(program: str, pages: list[Path]) -> None:
    done = run_to_end([program, *CHECKS[program], *pages])
    assert (done.returncode, done.stderr) == (0, "")
