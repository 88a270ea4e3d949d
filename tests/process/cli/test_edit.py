"""`mcpd edit` before a person at a terminal, with an editor that writes what it is told to."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Daemon, own_directory, running, scripted
from tests.terminals import Typing

EDITOR = """
import os, shutil, sys
*_, file = sys.argv
turn = os.path.join(os.path.dirname(__file__), "turn")
number = len(open(turn).read()) if os.path.exists(turn) else 0
open(turn, "a").write("x")
print("editing", oct(os.stat(file).st_mode & 0o777), open(file).read().count("mine"), flush=True)
edit = os.path.join(os.path.dirname(__file__), f"edit{number}")
if os.path.exists(edit + ".py"):
    exec(open(edit + ".py").read())
if os.path.exists(edit):
    shutil.copyfile(edit, file)
"""
QUIET = {"one": scripted(tools=["echo"])}


class Editing:
    """Somebody with an editor, whose edits are written down beforehand."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.config = daemon.config
        self.bin = daemon.directory / "bin"
        self.bin.mkdir()
        (self.bin / "editor.py").write_text(EDITOR)
        daemon.environ["VISUAL"] = f"{sys.executable} '{self.bin / 'editor.py'}' --wait"
        self.text = "// mine\n" + self.config.read_text()
        self.config.write_text(self.text)

    def edits(self, *texts: str) -> None:
        for number, text in enumerate(texts):
            (self.bin / f"edit{number}").write_text(text)

    def does(self, body: str) -> None:
        """Let the editor do more, before the first edit."""
        (self.bin / "edit0.py").write_text(body)

    def open(self, *words: str) -> Typing:
        return Typing(self.daemon, "edit", "--config", str(self.config), *words)

    @property
    def copies(self) -> list[Path]:
        return [path for path in self.config.parent.iterdir() if path.name.endswith(f".{self.config.name}")]


@pytest.fixture
def editing() -> Iterator[Editing]:
    with running({"mcpServers": QUIET}) as daemon:
        daemon.ready("one")
        yield Editing(daemon)


def test_a_sound_text_takes_the_files_place_and_its_effect_is_shown(editing: Editing) -> None:
    editing.config.chmod(0o640)
    editing.edits(editing.text.replace('"one"', '"two"'))
    with editing.open() as person:
        status, said = person.end()
    assert (status, "editing 0o600 1" in said, "added: two; removed: one" in said) == (0, True, True), said
    assert editing.config.read_text() == editing.text.replace('"one"', '"two"')
    assert (editing.config.stat().st_mode & 0o777, editing.copies) == (0o640, [])
    editing.daemon.ready("two")


def test_a_fault_is_told_with_its_line_and_is_edited_again_or_left(editing: Editing) -> None:
    faulty = editing.text.replace('"args"', '"arg"')
    # A server may wait for a variable.
    sound = editing.text.replace('"one": {', '"one": {"start": "lazy", "env": {"A": "${NOT_SET_HERE}"}, ')
    editing.edits(faulty, sound, "{")
    with editing.open() as person:
        told = person.until("saving? ")
        fault = r"line 2, column \d+: \$\.mcpServers\.one\.arg: unknown key 'arg': did you mean 'args'\?"
        assert re.search(fault, told), told
        assert editing.config.read_text() == editing.text
        person.write("e")
        status, said = person.end()
    assert (status, "is written" in said, '"start": "lazy"' in editing.config.read_text()) == (0, True, True)
    kept = editing.config.read_text()
    with editing.open() as person:
        assert "line 1, column 2" in person.until("saving? ")
        person.write("x")
        status, said = person.end()
    assert (status, "is unchanged" in said) == (0, True), said
    assert (editing.config.read_text(), editing.copies) == (kept, [])


def test_what_was_not_edited_is_said_to_be_unchanged_even_with_a_fault(editing: Editing) -> None:
    for text in ("", "[{"):
        editing.config.write_text(editing.text + text)
        with editing.open("--no-reload") as person:
            status, said = person.end()
        assert (status, f"{editing.config} is unchanged" in said, editing.copies) == (0, True, []), said


def test_what_somebody_else_has_changed_meanwhile_stays_and_the_copy_is_named(editing: Editing) -> None:
    theirs, mine = editing.text + "// theirs\n", editing.text + "// more of mine\n"
    editing.does(f"open({str(editing.config)!r}, 'w').write({theirs!r})")
    editing.edits(mine)
    with editing.open() as person:
        status, said = person.end()
    (copy,) = editing.copies
    assert (status, "written by somebody else" in said, str(copy) in said) == (1, True, True), said
    assert (editing.config.read_text(), copy.read_text()) == (theirs, mine)
    assert copy.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("body", ["sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_an_editor_that_fails_loses_nothing(body: str, editing: Editing) -> None:
    editing.does(f"open(file, 'a').write('// more')\n{body}")
    with editing.open() as person:
        status, said = person.end()
    (copy,) = editing.copies
    assert (status, "no text from the editor" in said, str(copy) in said) == (1, True, True), said
    assert (editing.config.read_text(), copy.read_text()) == (editing.text, editing.text + "// more")


def test_profiles_and_variables_are_checked_as_what_they_are(editing: Editing) -> None:
    own = editing.config.parent / "profiles.d"
    own.mkdir(mode=0o700)
    profile, env = own / "reader.json", editing.config.with_name("env")
    for path, text in ((profile, "{"), (env, "TOKEN=k-83hd82hd8xQ2\n")):
        path.write_text(text)
        path.chmod(0o600)
    # The former text had a fault.
    editing.edits('{"surface": "bogus"}', '{"surface": "full"}', "no variable", "TOKEN=k-2\n")
    with editing.open(str(profile), str(env)) as person:
        assert "unknown surface 'bogus'" in person.until("saving? ")
        person.write("e")
        said = person.until("saving? ")
        assert f"{profile} is written" in said
        person.write("e")
        status, more = person.end()
    assert (status, profile.read_text(), env.read_text()) == (0, '{"surface": "full"}', "TOKEN=k-2\n"), more
    assert "applied: profiles" in more
    assert "k-83hd82hd8xQ2" not in said + more


def test_without_a_terminal_or_an_editor_nothing_happens() -> None:
    daemon = Daemon(own_directory(), {"mcpServers": QUIET}, {"VISUAL": "/no/editor", "EDITOR": ""})
    text = daemon.config.read_text()
    done = daemon.outcome("edit", "--config", str(daemon.config))
    assert (done.returncode, "an editor needs a terminal: `mcpd set" in done.stderr) == (1, True), done.stderr
    with Typing(daemon, "edit", "--config", str(daemon.config)) as person:
        status, said = person.end()
    assert (status, "/no/editor" in said, daemon.config.read_text()) == (1, True, text), said
    assert Editing(daemon).copies == []
