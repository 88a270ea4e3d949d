"""The packages: what they hold, and that an mcpd installed from them into an empty home serves a real server.

Nothing is fetched: `make venv` has put all that they need into .cache/wheels.
"""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from daemon import __version__
from tests.e2e.harness import ROOT, Daemon, own_directory, program, started
from tests.pairwise import at_night
from tests.waiting import run_to_end

WHEELS = ROOT / ".cache" / "wheels"

OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": str(WHEELS),
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "UV_NO_INDEX": "1",
    "UV_FIND_LINKS": str(WHEELS),
    "UV_OFFLINE": "1",
    "UV_NO_CONFIG": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "PIP_CONFIG_FILE": os.devnull,
}
"""Installers get what they install from .cache/wheels alone."""

SHARED = [
    *("man/man1/mcpd.1", "man/man1/mcpd-run.1", "mcpd/mcpd.schema.json"),
    *("bash-completion/completions/mcpd", "zsh/site-functions/_mcpd", "fish/vendor_completions.d/mcpd.fish"),
]
"""What stands below share/ wherever mcpd is installed."""


def run(*words: str | Path, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Run a command to its end; returns its stdout."""
    done = run_to_end(words, env=env, cwd=cwd, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout


def built(tree: Path, into: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution of a tree."""
    run(program("hatchling"), "build", "-d", into, cwd=tree)
    return next(into.glob("*.whl")), next(into.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both packages of this tree."""
    return built(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose home is empty."""
    path = f"{tmp_path}/.local/bin:/usr/local/bin:/usr/bin:/bin"
    return {"HOME": str(tmp_path), "PATH": path, "LANG": "C.UTF-8", **OFFLINE}


def test_the_wheel_holds_what_an_installation_needs(packages: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(packages[0]) as wheel:
        names = set(wheel.namelist())
    prefix = f"mcpd_supervisor-{__version__}"
    sources = [path for path in (ROOT / "daemon").rglob("*") if path.suffix in {".py", ".toml"}]
    units = [path for path in (ROOT / "systemd").rglob("*") if path.is_file()]
    expected = {
        *(str(path.relative_to(ROOT)) for path in sources),
        *(f"daemon/units/{path.relative_to(ROOT / 'systemd')}" for path in units),
        *(f"{prefix}.data/data/share/{name}" for name in SHARED),
        *("mcpd_supervisor.py", "daemon/py.typed", f"{prefix}.dist-info/licenses/LICENSE"),
    }
    assert not expected - names
    assert {name.partition("/")[0] for name in names} == {
        *("daemon", "mcpd_supervisor.py", f"{prefix}.data", f"{prefix}.dist-info")
    }


@pytest.mark.nightly
def test_a_wheel_of_the_source_distribution_is_the_same(packages: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, source = packages
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    again, _ = built(tmp_path / f"mcpd_supervisor-{__version__}", tmp_path / "dist")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {each.filename: each.CRC for each in one.infolist()} == {
            each.filename: each.CRC for each in other.infolist()
        }


INSTALLERS = {
    "pipx": (program("pipx"), "install", "--backend", "pip", "--python", sys.executable),
    "uv": (program("uv"), "tool", "install", "--python", sys.executable),
}


class Installed(Daemon):
    """A daemon of the mcpd that was installed into a home."""

    def command(self, *words: str) -> list[str]:
        return [str(Path(self.environ["HOME"]) / ".local" / "bin" / "mcpd"), *words]


@pytest.fixture
def running_in(home: dict[str, str]) -> Iterator[Installed]:
    directory = own_directory()
    config = {"mcpServers": {"time": {"command": program("mcp-server-time"), "args": ["--local-timezone=UTC"]}}}
    daemon = Installed(directory, config, home, code=directory)
    yield daemon
    assert not directory.exists()


@pytest.mark.parametrize("installer", at_night(INSTALLERS, "uv"))
def test_installed_into_an_empty_home_it_serves_a_real_server(
    packages: tuple[Path, Path], home: dict[str, str], running_in: Installed, installer: str
) -> None:
    run(*INSTALLERS[installer], f"{packages[0]}[locked]", env=home, cwd=Path(home["HOME"]))
    with started(running_in):
        told = json.loads(running_in.run("version", "--json"))
        assert told["mcpd"] == __version__
        assert told["installed"].startswith(home["HOME"])
        running_in.run("check", str(running_in.config))
        assert "_ARGCOMPLETE" in running_in.run("completions", "bash")
        running_in.ready("time")
        said = running_in.run("call", "time/get_current_time", "timezone=UTC")
        assert json.loads(said)["timezone"] == "UTC"
        environment = Path(told["interpreter"]).parent.parent
        assert all((environment / "share" / name).is_file() for name in SHARED)


@pytest.mark.nightly
@pytest.mark.parametrize("order", [("mcpd", "python-daemon"), ("python-daemon", "mcpd")])
def test_beside_python_daemon_one_of_both_says_in_whose_place_it_is(
    packages: tuple[Path, Path], home: dict[str, str], order: tuple[str, str]
) -> None:
    """Both have a package `daemon`, and the one that is installed last overwrites the other's."""
    place = Path(home["HOME"]) / "both"
    run(program("uv"), "venv", "--python", sys.executable, place, env=home)
    for name in order:
        wanted = f"{packages[0]}[locked]" if name == "mcpd" else name
        run(program("uv"), "pip", "install", "--python", place / "bin" / "python", wanted, env=home)
    told = run_to_end([place / "bin" / "mcpd", "version"], env=home)
    if order[-1] == "mcpd":
        assert told.returncode == 0
        assert "python-daemon 3.1.2 is installed here, too" in told.stdout
    else:
        assert told.returncode == 1
        assert told.stderr.startswith("mcpd: the Python package `daemon` in ")
        assert "install mcpd in an environment of its own" in told.stderr
        assert told.stderr.count("\n") == 1
