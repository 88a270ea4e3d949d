"""mcpd's skill: a page that no server's words break, and a file that leaves nothing behind."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from daemon.documents import files
from daemon.documents.files import DocumentError, FoundFile
from daemon.safety.escape import legible
from daemon.setup.clients.programs import PROGRAMS, Machine
from daemon.setup.clients.skills import MAX_BYTES, MAX_LINE, change, page

HEAD = page({}).split("---")[1]
NASTY = st.text(
    alphabet=st.one_of(st.characters(), st.sampled_from("\n\r\u2028\u202e\u200b`-:#'\"{}|>&*!%@\x1b\x00"))
)


@given(st.dictionaries(NASTY, NASTY, max_size=12))
def test_no_words_of_servers_break_the_page(servers: dict[str, str]) -> None:
    text = page({name: words.encode(errors="replace").decode() for name, words in servers.items()})
    assert len(text.encode()) <= MAX_BYTES
    begin, head, _body = text.split("---\n", 2)
    assert (begin, head) == ("", HEAD.lstrip("\n"))
    said = yaml.safe_load(head)
    assert (set(said), said["name"]) == ({"name", "description"}, "mcpd")
    assert 0 < len(said["description"]) <= 1024
    before, after = page({}).split("- none yet")
    assert text.startswith(before)
    assert text.endswith(after)
    listed = text.removeprefix(before).removesuffix(after).split("\n")
    assert len(listed) == max(1, len(servers))
    assert all(line.startswith("- ") and len(line.splitlines()) == 1 for line in listed)
    assert all(len(line) <= MAX_LINE + 2 and legible(line) == line and "`" not in line for line in listed)


def test_the_last_servers_are_left_out_and_counted_where_the_page_is_full() -> None:
    text = page({f"server{number}": "tools " * 30 for number in range(500)})
    assert MAX_BYTES - 2 * MAX_LINE < len(text.encode()) <= MAX_BYTES
    shown = [line for line in text.splitlines() if line.startswith("- server")]
    assert shown[0].startswith("- server0: tools tools")
    assert f"- {500 - len(shown)} more: `mcpd tools` lists them" in text


def tree(root: Path) -> dict[str, bytes | None]:
    """All that is below a directory, with the content of files."""
    return {str(each): each.read_bytes() if each.is_file() else None for each in root.rglob("*")}


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode", "gemini"])
@pytest.mark.parametrize("there", [0, 1, 2, 3, 4])
def test_what_is_written_goes_again_with_the_directories_that_were_made(
    tmp_path: Path, name: str, there: int
) -> None:
    machine = Machine(home=tmp_path / "home", directory=tmp_path, environ={})
    path, state = PROGRAMS[name].skill(machine), tmp_path / "state"
    assert path is not None
    inner = [each for each in reversed(path.parents) if tmp_path in each.parents]
    for each in inner[:there]:
        each.mkdir()
    before = tree(tmp_path / "home")
    assert change(path, state, "one")
    assert not change(path, state, "one")
    assert change(path, state, "two")
    assert path.read_text() == "two"
    assert change(path, state, "")
    assert tree(tmp_path / "home") == before
    assert not change(path, state, "")
    assert not list((state / "skills").iterdir())


def test_a_file_that_is_not_mcpds_or_was_changed_stays(tmp_path: Path) -> None:
    path, state = tmp_path / "skills" / "mcpd" / "SKILL.md", tmp_path / "state"
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(DocumentError, match="is not mcpd's text, so it stays"):
        change(path, state, "one")
    assert not change(path, state, "")
    assert path.read_text() == "mine"
    path.unlink()
    change(path, state, "one")
    path.write_text("one, and mine")
    for text in ("two", ""):
        with pytest.raises(DocumentError, match="is not mcpd's text, so it stays"):
            change(path, state, text)
    assert path.read_text() == "one, and mine"
    (path.parent / "notes").write_text("mine, too")
    path.write_text("one")
    assert change(path, state, "")
    assert [each.name for each in path.parent.iterdir()] == ["notes"]


def test_a_write_that_was_cut_off_is_not_anybodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, state = tmp_path / "mcpd" / "SKILL.md", tmp_path / "state"
    change(path, state, "one")
    replace = files.replace

    def cut_off(found: FoundFile, content: bytes, **more: bool) -> None:
        if content == b"two":
            raise DocumentError("the disk is full")
        replace(found, content, **more)

    monkeypatch.setattr(files, "replace", cut_off)
    with pytest.raises(DocumentError, match="the disk is full"):
        change(path, state, "two")
    assert path.read_text() == "one"
    assert change(path, state, "")
    assert not path.parent.exists()


def test_a_directory_of_skills_may_stand_elsewhere() -> None:
    environ = {"CLAUDE_CONFIG_DIR": "/c", "XDG_CONFIG_HOME": "/x"}
    machine = Machine(home=Path("/h"), directory=Path("/d"), environ=environ)
    found = {name: str(program.skill(machine)) for name, program in PROGRAMS.items() if program.skills}
    assert found == {
        "claude-code": "/c/skills/mcpd/SKILL.md",
        "codex": "/h/.agents/skills/mcpd/SKILL.md",
        "opencode": "/x/opencode/skills/mcpd/SKILL.md",
        "gemini": "/h/.gemini/skills/mcpd/SKILL.md",
    }
    assert PROGRAMS["cursor"].skill(machine) is None


def test_a_dry_run_tells_that_there_is_a_skill_and_leaves_it(tmp_path: Path) -> None:
    path, state = tmp_path / "skills" / "mcpd" / "SKILL.md", tmp_path / "state"
    assert not change(path, state, "", dry_run=True)
    change(path, state, page({}))
    before = tree(tmp_path)
    assert change(path, state, "", dry_run=True)
    assert tree(tmp_path) == before
