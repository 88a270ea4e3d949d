"""Changes of entries: what is shown of them, which faults they would have, and which change is taken back."""

import json
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio

from daemon.console import changes
from daemon.console.changes import UNDO, entry_of, faults, keys_of, way_back, with_keys
from daemon.console.page import Notice, Viewer
from daemon.errors import InvalidArguments
from daemon.operators.base import DaemonFacts, Refused
from daemon.operators.own_lines import Printed
from daemon.setup.drafts import EX_MEANWHILE
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.console.browsing import Desk
from tests.unit.console.pages.drawing import Lines, viewer_of
from tests.unit.operators.stage import FACTS, operator_context

SECRET, OTHER = "7fK2mQ9xVb4Z", "qX7new9Secret3Vb"
ENTRY: dict[str, Any] = {
    "command": "x",
    "args": ["--api-key", SECRET, "--verbose"],
    "env": {"API_TOKEN": SECRET, "LEVEL": "${LEVEL}", "SECOND": "${GIT__SECOND}"},
}


@pytest.fixture
def facts(tmp_path: Path) -> DaemonFacts:
    config = tmp_path / "mcpd.json"
    config.write_text(json.dumps({"mcpServers": {"git": ENTRY}}))
    (tmp_path / "env").write_text(f"LEVEL=debug\nGIT__SECOND={OTHER}\n")
    for each in tmp_path.iterdir():
        each.chmod(0o600)
    return attrs.evolve(FACTS, config=str(config), environ={})


def test_an_entry_is_shown_without_secrets_and_with_its_references(facts: DaemonFacts) -> None:
    shown = entry_of(facts, "git")
    assert SECRET not in shown
    assert OTHER not in shown
    entry = json.loads(shown)
    assert entry["args"] == ["--api-key", "(a secret)", "--verbose"]
    assert entry["env"] == {"API_TOKEN": "(a secret)", "LEVEL": "${LEVEL}", "SECOND": "${GIT__SECOND}"}
    # Without secrets it is shown as it is.
    entry = {"command": "x", "env": {"EMPTY": ""}}
    Path(facts.config).write_text(json.dumps({"mcpServers": {"git": entry}}))
    assert json.loads(entry_of(facts, "git")) == entry


@pytest.mark.parametrize("call", [7.5, "30s"])
def test_a_form_keeps_the_time_of_calls_in_each_spelling(call: object) -> None:
    shown = json.dumps({"command": "x", "timeouts": {"call": call, "idle": 60}})
    fields = {key: str(each) for key, each in keys_of(shown).items()}
    assert json.loads(with_keys(shown, fields)) == json.loads(shown)
    del fields["enabled"]  # a box that is not ticked
    assert json.loads(with_keys(shown, fields))["enabled"] is False


@pytest.mark.parametrize("faulty", [{"timeouts": 5}, {"env": ["A=b"]}, {"args": "--verbose"}, {"env": None}])
def test_an_entry_of_other_shapes_has_no_form_and_is_left_alone(faulty: dict[str, Any]) -> None:
    shown = json.dumps({"command": "x", **faulty})
    assert keys_of(shown) == {}
    with pytest.raises(InvalidArguments, match="correct it as JSON"):
        with_keys(shown, {"command": "y"})


@cases("name", "text", "said")
def test_faults_have_their_line_in_typed_text(facts: DaemonFacts, name: str, text: str, said: str) -> None:
    first = str(faults(facts, {"name": name, "entry": text})[0])
    assert said in first
    assert SECRET not in first


def test_a_sound_entry_has_no_faults_and_is_not_written(facts: DaemonFacts) -> None:
    before = Path(facts.config).read_text()
    assert not faults(facts, {"name": "git", "entry": '{"command": "y"} // mine'})
    assert Path(facts.config).read_text() == before


def viewer(facts: DaemonFacts, last: Notice | None = None) -> Viewer:
    return msgspec.structs.replace(viewer_of(operator_context(Stage(), facts=facts)), last=last)


async def test_only_the_last_change_is_taken_back(facts: DaemonFacts) -> None:
    done: list[Viewer] = []

    async def undo(viewer: Viewer) -> Notice:
        await trio.lowlevel.checkpoint()
        done.append(viewer)
        return Notice("It is as it was.")

    last = Notice("changed", undo=undo, key="its own")
    for key, of in (("", last), ("another", last), (last.key, None)):
        with pytest.raises(Refused, match="not the last change of this session"):
            await UNDO.act(viewer(facts, of), {"key": key})
    assert not done
    told = await UNDO.act(viewer(facts, last), {"key": last.key})
    assert isinstance(told, Notice)
    assert told.text == "It is as it was."
    assert len(done) == 1


AGAIN = json.dumps({"mcpServers": {"git": {**ENTRY, "cwd": "/"}}})


@pytest.mark.parametrize(("file", "text"), [("mcpd.json", AGAIN), ("env", "LEVEL=debug\nGIT__SECOND=x\n")])
async def test_what_was_changed_again_is_not_taken_back(facts: DaemonFacts, file: str, text: str) -> None:
    undo = await way_back(facts, "git")
    printed = repr(Notice("changed", undo=undo))
    assert not [each for each in (SECRET, OTHER) if each in printed]
    await trio.Path(facts.config).with_name(file).write_text(text)
    with pytest.raises(Refused, match="git was changed again since then: nothing was undone"):
        await undo(viewer(facts))


@pytest.mark.parametrize(("status", "can_go_back"), [(0, True), (EX_MEANWHILE, False)])
async def test_nothing_newer_is_undone(
    facts: DaemonFacts, monkeypatch: pytest.MonkeyPatch, status: int, can_go_back: bool
) -> None:
    Lines(monkeypatch, changes, Printed(status, "x was changed"))
    told = await changes.change(viewer(facts), ("set", "git", "-"), "{}")
    assert (told.undo is not None, told.is_error, told.server) == (can_go_back, False, "git")


async def test_entries_are_checked_for_those_alone_who_may_change_them() -> None:
    desk = Desk()
    own, reader, stranger = desk.browser(), desk.browser(may_change=False), desk.browser(may_change=None)
    token = (await own.get("/ui/list")).form_token
    wish = {"form_token": token, "name": "git", "entry": "{}"}
    assert (await own.post("/ui/check", wish)).status == 200
    desk.context.redact.hide([SECRET])
    faulty = {**wish, "entry": f'{{"command": "x", "sandbox": "{SECRET}"}}'}
    assert SECRET not in (await own.post("/ui/check", faulty)).text
    assert (await own.post("/ui/check", {**wish, "form_token": "another"})).status == 403
    assert (await own.post("/ui/check", wish, origin="http://evil.example")).status == 403
    token = (await reader.get("/ui/list")).form_token
    assert (await reader.post("/ui/check", {**wish, "form_token": token})).status == 403
    assert (await stranger.post("/ui/check", wish)).status == 401
    assert (await own.get("/ui/check")).status in {404, 405}
