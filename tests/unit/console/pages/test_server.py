"""The page of one server."""

from __future__ import annotations

import pytest

from daemon.authorization.login_runs import LoginRun
from daemon.authorization.logins import DeviceCode, LoginPage, Wish
from daemon.console.pages.server_pages import SERVER
from daemon.errors import UnknownServer
from daemon.history.event import Event, EventKind
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.stage import OperatorStage


async def test_nothing_that_a_server_writes_becomes_markup() -> None:
    stage = OperatorStage()
    stage.alpha.stderr.add(HOSTILE)
    stage.stage.lists("alpha", {"name": "one", "description": HOSTILE, "inputSchema": {"type": "object"}})
    context = stage.context()
    context.history.note(Event(kind=EventKind.ENDED, server="alpha", text=HOSTILE))
    page = await drawn(SERVER, viewer_of(context, server="alpha"))
    assert page.text.count("<script>alert(1)</script>") >= 2
    assert page.is_harmless()


async def test_its_history_is_its_own_the_newest_first() -> None:
    context = OperatorStage().context()
    for server, text in (("alpha", "first"), ("beta", "another"), ("alpha", "second")):
        context.history.note(Event(kind=EventKind.ENDED, server=server, text=text))
    events = (await values_of(SERVER, viewer_of(context, server="alpha")))["server-history"]["events"]
    assert ["second" in each.text for each in events] == [True, False]
    assert len(events) == 2


async def test_the_last_errors_of_its_calls_are_shown() -> None:
    context = OperatorStage().context()
    context.counters.recent.failed("alpha", "look", "UpstreamTimeout", "it took too long")
    page = await drawn(SERVER, viewer_of(context, server="alpha"))
    assert "look UpstreamTimeout: it took too long" in page.text


async def test_each_instance_has_its_lines_and_a_button_of_its_own() -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#1", "alpha@~/src", workspace="~/src")
    for each in stage.context().instances_of("alpha"):
        each.stderr.add(f"I am {each.name}")
    context = stage.context()
    page = await drawn(SERVER, viewer_of(context, server="alpha"))
    assert "I am alpha#1" in page.text
    assert "/ui/sessions/%231" in page.links
    named = [each["value"] for tag, each in page.tags if tag == "input" and each["name"] == "instance"]
    assert named == ["alpha#1", "alpha@~/src"]


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (LoginPage(url="https://as.example/?a=1&b=2", redirect="http://127.0.0.1:1/"), "on another machine"),
        (DeviceCode(url="https://as.example/", code="ABCD", complete_url=""), "type the code ABCD"),
    ],
)
async def test_a_login_under_way_is_shown_to_who_may_change_things(
    shown: LoginPage | DeviceCode, said: str
) -> None:
    servers = {"alpha": {"url": "https://x.example/mcp"}}
    context = OperatorStage(Stage(config_of({"mcpServers": servers}))).context()
    run = LoginRun(Wish(server="alpha", url="https://x.example", directory="/", secret_service=False, scope=""))
    run.show(shown)
    context.logins._running["alpha"] = run
    page = await drawn(SERVER, viewer_of(context, server="alpha"))
    assert shown.url in page.links
    assert said in page.text
    page = await drawn(SERVER, viewer_of(context, server="alpha", may_change=False))
    assert shown.url not in page.html
    assert page.forms == []


async def test_a_server_that_is_not_there_has_no_page() -> None:
    with pytest.raises(UnknownServer, match="alhpa"):
        await SERVER.fragments(viewer_of(OperatorStage().context(), server="alhpa"))


async def test_nothing_differs_as_long_as_nothing_happens() -> None:
    viewer = viewer_of(OperatorStage().context(), server="alpha")
    assert await values_of(SERVER, viewer) == await values_of(SERVER, viewer)
