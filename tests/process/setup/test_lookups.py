"""Packages, as the user's own clients tell of them, and locks, as git merges them."""

import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from daemon.config.command_lines import Package
from daemon.config.config_model import Server
from daemon.config.lock_file import LOCK, lock_in
from daemon.setup.adding import changes, newest, packages_of, web_address
from daemon.setup.locking import approve, empty, written
from tests.unit.cases import cases
from tests.unit.catalog.samples import tool

NPM = Package("@s/p", "@s/p", "@s/p@", "npm", "")
PYPI = Package("s_p==1", "s_p", "s_p==", "pypi", "==1")


def client(directory: Path, name: str, body: str) -> None:
    program = directory / name
    program.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    program.chmod(0o755)


@cases("kind", "name", "body", "version")
def test_the_users_own_client_is_asked(
    kind: str, name: str, body: str, version: str | None, tmp_path: Path
) -> None:
    client(tmp_path, name, body)
    # Without an index, this interpreter's pip finds nothing.
    environ = {"PATH": str(tmp_path), "PIP_NO_INDEX": "1", "HOME": str(tmp_path)}
    assert newest({"npm": NPM, "pypi": PYPI}[kind], environ, tmp_path) == version


IMAGE = Package("ghcr.io/o/server:1", "ghcr.io/o/server:1", "ghcr.io/o/server@", "docker", "")
DIGEST = f"sha256:{'0a' * 32}"


def test_without_a_client_and_after_the_deadline_there_is_no_version(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    assert newest(NPM, environ, tmp_path) is newest(IMAGE, environ, tmp_path) is None
    client(tmp_path, "npm", f"open({str(tmp_path / 'asked')!r}, 'w'); print('1.2.3')")
    assert newest(NPM, environ, tmp_path, deadline=time.monotonic()) is None
    assert not (tmp_path / "asked").exists()


def test_an_engine_tells_the_digest_of_a_pulled_image(tmp_path: Path) -> None:
    asked = "assert sys.argv[1:3] == ['image', 'inspect'] and sys.argv[-1] == 'ghcr.io/o/server:1'"
    client(tmp_path, "docker", f"""{asked}; print('["ghcr.io/o/server@{DIGEST}"]')""")
    assert newest(IMAGE, {"PATH": str(tmp_path)}, tmp_path) == DIGEST
    client(tmp_path, "docker", "print('[]')")
    assert newest(IMAGE, {"PATH": str(tmp_path)}, tmp_path) is None


# --- the address of what has changed ----------------------------------------------------------------------


def test_pip_tells_the_address_of_a_packages_changes(tmp_path: Path) -> None:
    urls = ("Source, https://a.example/source", "Change Log, https://a.example/log?v=1")
    metadata = [
        "Metadata-Version: 2.1",
        "Name: s-p",
        "Version: 1.2",
        *(f"Project-URL: {each}" for each in urls),
    ]
    form = ["Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any"]
    with zipfile.ZipFile(tmp_path / "s_p-1.2-py3-none-any.whl", "w") as wheel:
        for name, lines in {"METADATA": [*metadata, "Home-page: https://a.example"], "WHEEL": form}.items():
            wheel.writestr(f"s_p-1.2.dist-info/{name}", "\n".join([*lines, ""]))
        wheel.writestr("s_p-1.2.dist-info/RECORD", "")
    environ = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "HOME": str(tmp_path), "PATH": ""}
    assert changes("s-p==1.2", environ) == "https://a.example/log?v=1"
    assert changes("s-p==1.3", environ) == ""
    assert changes("@s/p@1.2", environ) == ""
    assert changes(f"a/b@{DIGEST}", environ) == ""


def test_uv_tells_it_where_this_python_has_no_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = '{"repository": "https://a.example/s-p"}'
    client(tmp_path, "uv", f"assert sys.argv[1:5] == ['tool', 'run', 'pip', 'install']; print('{told}')")
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert changes("s-p==1.2", environ) == "https://a.example/s-p"


@cases("told", "address")
def test_only_a_short_web_address_under_a_known_label_is_told(told: str, address: str) -> None:
    assert web_address(told) == address


# --- what the packages of a command are in a lock ---------------------------------------------------------


def packages(tmp_path: Path, *command: str, **env: str) -> dict[str, tuple[bool, str, tuple[str, ...]]]:
    server = Server(name="s", command=command[0], args=command[1:], env=env)
    found = packages_of(server, {"PATH": str(tmp_path), "HOME": str(tmp_path)})
    return {name: (each.pinned, each.version, each.hashes) for name, each in found.items()}


def test_the_hashes_of_a_release_are_those_of_its_files_in_order(tmp_path: Path) -> None:
    client(
        tmp_path,
        "uv",
        "assert '--generate-hashes' in sys.argv and sys.stdin.read() == 'mcp-git==1.2'\n"
        "print('mcp-git==1.2', *(f'\\\\\\n  --hash=sha256:{each}' for each in 'hgfedcbaa'))",
    )
    client(
        tmp_path,
        "npm",
        "assert sys.argv[1:] == ['view', '@s/p@1.2.3', 'dist.integrity']; print('sha512-a+b/c==')",
    )
    found = packages(tmp_path, "uvx", "--with", "mcp<2", "mcp-git[all]==1.2")
    assert found == {
        "mcp-git": (True, "1.2", tuple(f"sha256:{each}" for each in "abcdefgh")),
        "mcp": (False, "", ()),
    }
    assert packages(tmp_path, "sh", "-c", "npx -y @s/p@1.2.3") == {"@s/p": (True, "1.2.3", ("sha512-a+b/c==",))}
    image = f"ghcr.io/o/server:1@{DIGEST}"
    assert packages(tmp_path, "docker", "run", "-i", image) == {"ghcr.io/o/server:1": (True, DIGEST, (DIGEST,))}
    assert packages(tmp_path, "docker", "run", "some/mcp:1") == {"some/mcp:1": (False, "", ())}
    assert packages(tmp_path, "node", "server.js") == {}
    assert packages(tmp_path, "npx", "owner/repository") == {}


def test_a_lookup_that_fails_makes_no_hash_and_the_variables_of_a_server_configure_its_own(
    tmp_path: Path,
) -> None:
    assert packages(tmp_path, "uvx", "mcp-git==1.2") == {"mcp-git": (True, "1.2", ())}
    client(tmp_path, "uv", "print('--hash=sha256:aa'); sys.exit(1)")
    assert packages(tmp_path, "uvx", "mcp-git==1.2") == {"mcp-git": (True, "1.2", ())}
    client(tmp_path, "uv", "import os; print(f'--hash=sha256:{os.environ[\"UV_INDEX_URL\"]}')")
    found = packages(tmp_path, "uvx", "mcp-git==1.2", UV_INDEX_URL="mine", PATH=str(tmp_path))
    assert found["mcp-git"][2] == ("sha256:mine",)


def test_a_command_with_a_registry_of_its_own_is_not_looked_up_in_another(tmp_path: Path) -> None:
    client(tmp_path, "uv", "print('--hash=sha256:aa')")
    client(tmp_path, "npm", "print('sha512-aa')")
    for words in (
        ("uvx", "--index-url", "https://x/simple", "mcp-git==1.2"),
        ("uvx", "--default-index=https://x/simple", "mcp-git==1.2"),
        ("uvx", "-i", "https://x/simple", "mcp-git==1.2"),
        ("uvx", "--from", "mcp-git==1.2", "--index", "https://x/simple", "mcp-git"),
        ("npx", "--registry", "https://x", "mcp-git@1.2.3"),
    ):
        ((_, _, found),) = packages(tmp_path, *words).values()
        assert not found
    ((_, _, found),) = packages(tmp_path, "uvx", "mcp-git==1.2", "-i", "what the server is told").values()
    assert found


def text_of(*tools: str) -> str:
    content = empty()
    approve(content, [tool("git", name) for name in tools], {"git": "identity"})
    return written(content)


class Repository:
    """A repository with one lock."""

    def __init__(self, directory: Path, *tools: str) -> None:
        self.directory = directory
        self.tools = tools
        self.git("init", "-q", "-b", "main")
        self.write(*tools)
        self.commit()

    def git(self, *words: str) -> int:
        settings = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *settings, *words], cwd=self.directory, check=False, capture_output=True, timeout=60
        ).returncode

    def write(self, *names: str) -> None:
        (self.directory / LOCK).write_text(text_of(*names))

    def commit(self) -> None:
        assert self.git("add", "-A") == 0
        assert self.git("commit", "-qm", "x") == 0

    def merged(self, *branches: tuple[str, ...]) -> bool:
        """Whether branches with these tools merge without a conflict."""
        for number, names in enumerate(branches):
            assert self.git("checkout", "-qb", f"b{number}", "main") == 0
            self.write(*names)
            self.commit()
        assert self.git("checkout", "-q", "b0") == 0
        return self.git("merge", "-q", "--no-edit", *(f"b{number}" for number in range(1, len(branches)))) == 0


MIDDLE = tuple("dehkn")


@cases("one", "other", "merges")
def test_git_merges_tools_that_were_added_in_different_places(
    one: str, other: str, merges: bool, tmp_path: Path
) -> None:
    repository = Repository(tmp_path, *MIDDLE)
    assert repository.merged((*MIDDLE, one), (*MIDDLE, other)) is merges
    if merges:
        content = (tmp_path / LOCK).read_bytes()
        assert not lock_in(content).problem
        assert set(lock_in(content).servers["git"].tools) == {*MIDDLE, one, other}
        assert content.decode() == text_of(*MIDDLE, one, other)


def test_a_tool_that_goes_merges_with_one_that_comes_elsewhere(tmp_path: Path) -> None:
    repository = Repository(tmp_path, *MIDDLE)
    assert repository.merged(MIDDLE[:-1], ("a", *MIDDLE))
    assert set(lock_in((tmp_path / LOCK).read_bytes()).servers["git"].tools) == {"a", *MIDDLE[:-1]}
