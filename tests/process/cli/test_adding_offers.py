"""`mcpd add` of bundles, before a person at a terminal, with a real daemon and sandboxes."""

import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Daemon, own_directory, started
from tests.scripted_server import command
from tests.terminals import Typing
from tests.unit.sources.packing import manifest, packed

SECRET = "typed-83hd82hd8kq"
SETTINGS = {
    "level": {"type": "boolean", "title": "Level", "description": "\x1b[2Jhow much", "required": True},
    "key": {"type": "string", "title": "Key", "description": "of yours", "required": True, "sensitive": True},
    "place": {"type": "string", "title": "Place", "description": "to look at", "default": "/srv"},
}
ENV = {"KEY": "${user_config.key}", "LEVEL": "${user_config.level}"}


class Person(Daemon):
    """Somebody with a home, a daemon and a bundle."""

    def __init__(self) -> None:
        super().__init__(own_directory(), {}, {})
        self.environ |= {"HOME": str(self.directory), "MCPD_CONFIG": str(self.config)}
        self.bundle = self.directory / "tool.mcpb"
        self.unpacked = self.directory / ".local/share/mcpd/bundles"
        self.bundled(*command(tools=["echo"]))

    def bundled(self, program: str, *args: str) -> None:
        """Make a bundle that runs a command."""
        launch = {"command": program, "args": [*args, "${user_config.place}"], "env": ENV}
        files = {
            "manifest.json": json.dumps(
                manifest(mcp_config=launch, user_config=SETTINGS, description="A tool\x1b[2J")
            )
        }
        self.bundle.write_bytes(packed({**files, "server/index.js": ""}))

    @property
    def written(self) -> dict[Path, str]:
        """Every file of the person's, but for those of the daemon and the bundle's own."""
        files = [*self.directory.glob("*env*"), self.config, *self.unpacked.rglob("*")]
        return {path: path.read_text() for path in files if path.is_file()}


@pytest.fixture
def person() -> Iterator[Person]:
    made = Person()
    with started(made):
        yield made


def test_a_person_answers_unseen_and_approves_what_the_bundle_lists(person: Person) -> None:
    with Typing(person, "add", str(person.bundle)) as typing:
        shown = typing.until("level (true, false): ")
        assert "asks for level: Level: \\x1b[2Jhow much" in shown
        assert "\n  A tool\\x1b[2J\n" in shown
        typing.write("perhaps")
        typing.until("level is one of true, false\nlevel (true, false): ")
        typing.write("true")
        typing.until("key: ")
        typing.write(SECRET)
        assert SECRET not in typing.until("Add it as some-server? [Y/n] ")
        typing.write("")
        assert "kept in" in typing.until("Approve? [Y/n] ")
        typing.write("")
        status, said = typing.end()
    assert (status, "approved some-server/echo" in said, SECRET in said) == (0, True, False), said
    entry = json.loads(person.config.read_text())["mcpServers"]["some-server"]
    assert entry["env"] == {"KEY": "${SOME_SERVER__KEY}", "LEVEL": "true"}
    assert (entry["trust"], entry["sandbox"]) == ("none", "home")
    keeping = [path for path, text in person.written.items() if SECRET in text]
    assert [stat.S_IMODE(path.stat().st_mode) for path in keeping] == [0o600]
    assert not person.ask("status")["servers"]["some-server"]["held"]


def test_a_bundle_whose_server_cannot_come_up_is_taken_back_whole(person: Person) -> None:
    person.bundled("/no/program")
    before = person.written
    words = ("add", str(person.bundle), "--env", f"key={SECRET}", "--env", "level=true", "--yes")
    done = person.outcome(*words)
    said = done.stdout + done.stderr
    assert (done.returncode, "taken back" in said, SECRET in said) == (1, True, False), said
    assert person.written == before
    assert not [*person.unpacked.glob("*/*")]
    done = person.outcome(*words, "--keyring")
    assert (done.returncode, [*person.directory.rglob("SOME_SERVER__KEY")]) == (1, []), done.stderr
    done = person.outcome(*words, "--keyring", "--keep")
    assert [path.read_text() for path in person.directory.rglob("SOME_SERVER__KEY")] == [SECRET], done.stderr
    assert (done.returncode, len([*person.unpacked.glob("*/*")])) == (1, 2), done.stderr


ANSWERED = ("--yes", "--env", f"key={SECRET}", "--env", "level=true")


def test_a_removal_without_a_reload_names_what_deletes_the_bundle(person: Person) -> None:
    """A daemon that has not heard of it may still run the server."""
    person.run("add", str(person.bundle), "--no-reload", *ANSWERED)
    (unpacked,) = person.unpacked.iterdir()
    done = person.outcome("remove", "some-server", "--no-reload")
    assert (done.returncode, unpacked.is_dir()) == (0, True), done.stderr
    command = done.stderr.partition("after `mcpd reload`, `")[2].partition("` deletes its bundle")[0]
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert [*person.unpacked.iterdir()] == []


@pytest.mark.parametrize("content", [b"", b"PK\3\4", packed({"../x": ""}), packed({"manifest.json": "[]"})])
def test_what_is_no_bundle_changes_nothing(person: Person, content: bytes) -> None:
    before = person.written
    person.bundle.write_bytes(content)
    done = person.outcome("add", str(person.bundle))
    assert (done.returncode, "Traceback" in done.stderr, person.written) == (1, False, before), done.stderr
