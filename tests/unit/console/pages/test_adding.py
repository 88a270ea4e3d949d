"""The page that adds a server: the line that a form stands for, and what is shown again."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from daemon.config.redaction import Redactors
from daemon.console.page import Notice
from daemon.console.pages import adding_pages, upgrade_pages
from daemon.console.pages.adding_pages import (
    ADD_PAGE,
    ADDING_ACTIONS,
    CLIENTS_PAGE,
    first_run,
    line_of,
    typed_faults,
)
from daemon.console.pages.server_pages import SERVERS
from daemon.console.pages.upgrade_pages import LOOK
from daemon.errors import InvalidArguments
from daemon.operators.base import Refused
from daemon.operators.own_lines import Printed
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.config.reading import config_of
from tests.unit.console.pages.drawing import Lines, drawn, viewer_of
from tests.unit.operators.stage import FACTS, OperatorStage, operator_context
from tests.unit.setup.machines import machine
from tests.waiting import PATIENCE

ADD, UP, UNDO_UP = ADDING_ACTIONS


@cases("what", "name", "command")
def test_a_command_goes_by_standard_input_word_by_word(what: str, name: str, command: list[str]) -> None:
    words, given, options = line_of({"what": what, "env": "KEY=s3cret\r\nexport B='x y'"})
    assert (words, options) == (["add", name, "-"], [])
    entry = {"command": command[0], "args": command[1:], "env": {"KEY": "s3cret", "B": "x y"}}
    assert json.loads(given) == entry


def test_an_address_is_an_entry_and_named_by_its_host() -> None:
    words, given, options = line_of({"what": "https://mcp.notion.com/mcp?key=s3cret", "sandbox": "strict"})
    assert (words, options) == (["add", "notion", "-"], ["--sandbox=strict"])
    assert json.loads(given) == {"url": "https://mcp.notion.com/mcp?key=s3cret", "env": {}}
    assert line_of({"what": "https://mcp.notion.com/mcp", "name": "mine"})[0] == ["add", "mine", "-"]


@pytest.mark.parametrize("what", ["npm:x", "pypi:x@1", "registry:io.github.o/x", "https://x.org/a.MCPB"])
def test_what_somebody_else_describes_is_a_word_and_its_variables_standard_input(what: str) -> None:
    assert line_of({"what": what, "trust": "none"}) == (["add", what], "", ["--trust=none"])
    words, given, options = line_of({"what": what, "name": "n", "env": "K=s3cret"})
    assert (words, given, options) == (["add", "n", what], "K=s3cret", ["--env-file=-"])


@cases("what", "given")
def test_json_goes_as_it_is(what: str, given: str) -> None:
    assert line_of({"what": what}) == (["add", "-"], given, [])
    assert line_of({"what": what, "name": "n"})[0] == ["add", "n", "-"]


def test_the_form_s_variables_stand_in_for_those_of_json() -> None:
    what = '{"mcpServers": {"a": {"command": "b", "env": {"K": "${K}", "L": "1"}}}}'
    words, given, options = line_of({"what": what, "env": "K=s3cret"})
    assert (words, options) == (["add", "a", "-"], [])
    assert json.loads(given) == {"command": "b", "env": {"K": "s3cret", "L": "1"}}


@cases("fields", "why")
def test_what_cannot_be_meant_is_refused_without_its_values(fields: Mapping[str, str], why: str) -> None:
    with pytest.raises(InvalidArguments, match=why) as refused:
        line_of(fields)
    assert "s3cret" not in str(refused.value)


async def test_a_registrys_server_is_added_only_as_it_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "mcpd: `--shown 5f5f` adds only what is shown here\no/x 1.0\n  mcpd: `--shown 6666` is what x says"
    lines = Lines(monkeypatch, adding_pages, Printed(0, shown), Printed(1, "o/x is not what was shown"))
    fields = {"what": "registry:o/x", "env": "K=v"}
    viewer = viewer_of(OperatorStage().context())
    assert await ADD.act(viewer, fields) == Notice(shown, shown="5f5f")
    refused = await ADD.act(viewer, {**fields, "again": "5f5f"})
    assert refused == Notice("o/x is not what was shown", is_error=True)
    assert [options for _words, _given, options in lines.ran] == [
        ["--env-file=-", "--dry-run"], ["--env-file=-", "--yes", "--shown=5f5f"],
    ]  # fmt: skip


async def test_an_entry_that_stays_is_not_told_as_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "added x to /c/mcpd.json\nmcpd: the daemon did not accept it: $.lazy\nmcpd: it stays"
    Lines(monkeypatch, adding_pages, Printed(1, said))
    told = await ADD.act(viewer_of(OperatorStage().context()), {"what": "x"})
    assert told == Notice(said, is_error=True, leads_to="/servers")


async def test_registries_are_searched_by_who_may_change_things(monkeypatch: pytest.MonkeyPatch) -> None:
    offer = {"name": "o/x", "version": "1", "description": "d", "packages": [{"registryType": "npm"}] * 2}
    found = "mcpd: one registry is down\n" + json.dumps({"servers": [{**offer, "remotes": [{}]}]}, indent=2)
    none = Printed(1, 'mcpd: none fits\n{"servers": [], "unread": ["r.org: refused"]}')
    lines = Lines(
        monkeypatch,
        adding_pages,
        Printed(0, found),
        Printed(1, "no server matches"),
        Printed(0, "{"),
        Refused("busy"),
        none,
    )
    assert ADD_PAGE.own is not None

    async def searched(query: str, *, may_change: bool = True) -> Any:
        viewer = viewer_of(OperatorStage().context(), query=query, may_change=may_change)
        return await ADD_PAGE.own(viewer)  # type: ignore[misc]

    assert (
        await searched("q=x", may_change=False)
        == await searched("q= ")
        == {"found": [], "said": "", "unread": []}
    )
    (seen,) = (await searched("q=x files"))["found"]
    assert seen["name"] == "o/x"
    assert (await searched("q=y"))["said"] == "no server matches"
    assert "too long" in (await searched("q=z"))["said"]
    assert (await searched("q=z"))["said"] == "busy"
    down = {"found": [], "said": "mcpd: none fits", "unread": ["r.org: refused"]}
    assert await searched("q=z") == down
    assert lines.ran[0] == (["search", "x", "files"], "", ["--registry", "--json", "--limit=10"])


async def test_clients_are_shown_without_any_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Lines(monkeypatch, adding_pages)
    here = machine(tmp_path, "cursor")
    (here.home / ".cursor" / "mcp.json").write_text('{"mcpServers": {"hunter2": {"command": "x"}}}')
    facts = attrs.evolve(FACTS, environ=here.environ)
    context = OperatorStage().context(facts=facts, redact=Redactors(["hunter2"]))
    for may_change in (True, False):
        told: Any = await CLIENTS_PAGE.own(viewer_of(context, may_change=may_change))  # type: ignore[misc]
        (cursor,) = (each for each in told["clients"] if each["client"] == "cursor")
        assert ([each["name"] for each in cursor["servers"]], cursor["mcpd"]) == (["[redacted]"], [])
    ended = threading.Event()
    monkeypatch.setattr(adding_pages, "READ_SECONDS", 0.01)
    monkeypatch.setattr(adding_pages, "found_clients", lambda _here: ended.wait(PATIENCE))
    with pytest.raises(Refused, match=r"were not read within 0\.01 s"):
        await CLIENTS_PAGE.own(viewer_of(context))  # type: ignore[misc]
    ended.set()


async def test_what_is_newer_is_looked_for_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade_pages, "_found", {})
    servers = {"old": {"command": "uvx", "args": ["x==1"]}, "new": {"command": "uvx", "args": ["y==3"]}}
    context = operator_context(Stage(config_of({"mcpServers": servers})))
    viewer = viewer_of(context)
    assert "newer version" not in (await drawn(SERVERS, viewer)).text
    becomes = {"old": [["x==1", "x==2"]], "new": [["y==2", "y==3"]], "gone": [["z", "z==1"]]}
    told = {name: {"becomes": each, "changes": "https://x.org/"} for name, each in becomes.items()}
    lines = Lines(
        monkeypatch, upgrade_pages, Printed(0, json.dumps({"servers": told})), Printed(1, "npm is not there")
    )
    assert await LOOK.act(viewer, {}) == Notice("3 servers have a newer version.", leads_to="/servers")
    page = await drawn(SERVERS, viewer)
    assert "x==1 → x==2" in page.text
    assert "y==3" not in page.text, "it was done since then"
    assert {"https://x.org/", "#upgrades"} <= {*page.links}
    assert "/ui/servers/old/upgrade" in page.forms
    assert "/ui/servers/new/upgrade" not in page.forms
    assert await LOOK.act(viewer, {}) == Notice("npm is not there", is_error=True)
    assert lines.ran[0] == (["upgrade"], "", ["--all", "--dry-run", "--json"])


async def test_what_somebody_else_adds_is_not_taken_back_here(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, later = (Stage(config_of({"mcpServers": each})) for each in ({}, {"theirs": {"command": "x"}}))

    async def run(*_words: object, **_more: object) -> Printed:
        await trio.lowlevel.checkpoint()
        stage.catalog.set(later.catalog.value)
        return Printed(1, "mine is failed: taken back")

    monkeypatch.setattr(adding_pages, "run_line", run)
    told = await ADD.act(viewer_of(operator_context(stage)), {"what": "x", "name": "mine"})
    assert isinstance(told, Notice)
    assert (told.leads_to, told.undo) == ("", None)


async def test_what_clients_have_is_looked_for_once_a_minute_and_for_who_may_use_it(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    report = dict[str, list[str]](servers=[], clients=[], left=[], unread=[])
    found = Printed(0, f"It would ask\n{json.dumps(report)}")
    lines = Lines(monkeypatch, adding_pages, found, Refused("`mcpd up` is under way"), Printed(1, "no disk"))
    monkeypatch.setattr(adding_pages, "_found", {})
    context = operator_context(Stage(config_of({"mcpServers": {}})))

    async def shown(*, may_change: bool = True) -> Any:
        (made,) = await first_run(viewer_of(context, may_change=may_change))
        return made.values["found"], made.values["said"], made.values["helps"]

    assert await shown(may_change=False) == ({}, "", False)
    assert [await shown() for _ in range(2)] == [(report, "It would ask", True)] * 2
    assert (await shown(may_change=False))[:2] == ({}, "")
    await trio.sleep(adding_pages.FOUND_SECONDS)
    assert await shown() == ({}, "`mcpd up` is under way", False)
    assert await UP.act(viewer_of(context), {}) == Notice("no disk", is_error=True)
    assert [options for _words, _given, options in lines.ran] == [
        *[["--dry-run", "--no-service", "--json"]] * 2, ["--yes", "--no-service", "--json"],
    ]  # fmt: skip


async def test_what_was_set_up_is_listed_and_can_be_undone_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {
        "name": "alpha",
        "from": [{"client": "cursor"}],
        "runs": "npx x",
        "notes": ["n"],
        "alreadyThere": False,
    }
    left = {"name": "odd", "client": "zed", "why": "cannot be used: it has no command"}
    clients = [{"client": name, "title": name.title(), "pending": name == "zed"} for name in ("cursor", "zed")]
    servers = [taken, {**taken, "name": "gone"}, {**taken, "name": "beta", "alreadyThere": True}]
    report = {"servers": servers, "clients": clients, "left": [left], "unread": []}
    undone = Printed(0, "Cursor: as it was"), Printed(0, "removed alpha")
    lines = Lines(monkeypatch, adding_pages, Printed(0, f"Works: alpha.\n{json.dumps(report)}"), *undone)
    monkeypatch.setattr(adding_pages, "_done", {})
    context = OperatorStage().context()
    told = await UP.act(viewer_of(context), {})
    assert told == Notice("", leads_to="/servers?new=1")
    page = await drawn(SERVERS, viewer_of(context, query="new=1"))
    assert "/ui/servers/alpha" in page.links
    assert "mcpd replaces them in Cursor: restart it" in page.text.replace("\n", " ")
    assert "Zed could not be changed" in page.text
    assert "not there any more" in page.text
    assert "set-up" not in (await drawn(SERVERS, viewer_of(context))).html
    told = await UNDO_UP.act(viewer_of(context), {})
    assert told == Notice("Cursor: as it was\nremoved alpha", leads_to="/servers")
    assert lines.ran[1:] == [(["uninstall", "cursor"], "", []), (["remove", "alpha"], "", [])]
    with pytest.raises(Refused, match="nothing was set up here"):
        await UNDO_UP.act(viewer_of(context), {})


async def test_a_client_that_cannot_be_changed_back_keeps_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    report = {
        "servers": [{"name": "alpha", "alreadyThere": False}],
        "clients": [{"client": "cursor", "pending": False}],
    }
    done = Printed(0, json.dumps(report))
    lines = Lines(
        monkeypatch,
        adding_pages,
        Printed(1, "Cursor: the file is read-only"),
        Refused("`mcpd add` is under way"),
        Printed(0, "ok"),
        done,
    )
    context = OperatorStage().context()
    monkeypatch.setattr(adding_pages, "_done", {context.facts.config: done})
    told = await UNDO_UP.act(viewer_of(context), {})
    assert told == Notice("Cursor: the file is read-only", is_error=True, leads_to="/servers")
    with pytest.raises(Refused, match="under way"):
        await UNDO_UP.act(viewer_of(context), {})
    assert await UNDO_UP.act(viewer_of(context), {})
    assert [words for words, _given, _options in lines.ran] == [
        *[["uninstall", "cursor"]] * 3,
        ["remove", "alpha"],
    ]


@cases("what", "found")
def test_faults_are_told_while_a_person_types(what: str, found: list[str], tmp_path: Path) -> None:
    facts = attrs.evolve(FACTS, config=str(tmp_path / "mcpd.json"))
    told = [str(each) for each in typed_faults(facts, {"what": what})]
    assert len(told) == len(found), told
    assert "line 4" not in str(told), "of no text that the person sees"
    assert all(words in text for words, text in zip(found, told, strict=True)), told
