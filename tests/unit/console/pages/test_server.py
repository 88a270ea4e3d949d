"""The page of one server."""

import shlex

import pytest

from daemon.authorization.login_runs import LoginRefused, LoginRun
from daemon.authorization.logins import DeviceCode, LoginPage, Wish
from daemon.causes import Cause, Remedy
from daemon.console import changes
from daemon.console.page import Notice
from daemon.console.pages.server_pages import SERVER, SERVER_ACTIONS, SERVERS, server_facts, shown
from daemon.errors import InvalidArguments, UnknownServer
from daemon.history.event import Event, EventKind
from daemon.operators import status_commands
from daemon.operators.base import Refused
from daemon.operators.own_lines import Printed
from daemon.states import ServerState
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.config.reading import config_of
from tests.unit.console.pages.drawing import HOSTILE, Lines, drawn, values_of, viewer_of
from tests.unit.operators.running import raw, running
from tests.unit.operators.stage import OperatorStage, operator_context


async def test_the_last_errors_of_its_calls_are_shown() -> None:
    context = OperatorStage().context()
    context.counters.recent.failed("alpha", "look", "UpstreamTimeout", "it took too long")
    page = await drawn(SERVER, viewer_of(context, server="alpha"))
    assert "look UpstreamTimeout: it took too long" in page.text


@pytest.mark.parametrize(("hours", "title"), [(0.5, "hour"), (1.9, "hour"), (2.1, "6 hours"), (13, "day")])
async def test_charts_cover_the_longest_period_of_which_half_is_known(hours: float, title: str) -> None:
    context = OperatorStage().context()
    context.history.note(Event(kind=EventKind.READY, server="alpha", at=context.wall() - hours * 3600))
    values = await values_of(SERVER, viewer_of(context, server="alpha"))
    assert values["server-charts"]["title"] == f"The last {title}"


async def test_each_instance_has_its_lines_and_a_button_of_its_own() -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#1", "alpha@~/src", workspace="~/src")
    for each in stage.context().instances_of("alpha"):
        each.stderr.add(f"I am {each.name}")
    context = stage.context()
    page = await drawn(SERVER, viewer_of(context, server="alpha"))
    logs = await drawn(SERVER, viewer_of(context, query="tab=logs", server="alpha"))
    assert "I am alpha#1" in logs.text
    assert "/ui/sessions/%231" in page.links
    named = [each["value"] for tag, each in page.tags if tag == "input" and each["name"] == "server"]
    assert named == ["alpha#1", "alpha@~/src"]


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (LoginPage(url="https://as.example/?a=1&b=2", redirect="http://127.0.0.1:1/"), "on another machine"),
        (DeviceCode(url="https://as.example/", code="ABCD", complete_url=""), "type the code ABCD"),
    ],
)
async def test_a_login_under_way_is_shown_to_who_may_answer(shown: LoginPage | DeviceCode, said: str) -> None:
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


# --- what is done to a server on its page, and what is said about it -----------------------------------------


ACTS = {each.path.rpartition("/")[2]: each.act for each in SERVER_ACTIONS if "{" in each.path}


async def test_what_a_refresh_has_brought_is_said() -> None:
    async with running() as daemon:
        git = daemon.servers["git"]
        git.lists = (raw("log"), raw("blame"))
        told = await ACTS["refresh"](viewer_of(daemon.context, server="git"), {})
        assert told == "git: epoch 2, 2 tools; came: blame; went: push, a/b"
        git.problem = "it does not answer"
        told = await ACTS["refresh"](viewer_of(daemon.context, server="git"), {})
        assert told == "git: it does not answer"


@pytest.mark.parametrize("act", ["restart", "refresh", "disable", "login", "logout"])
async def test_a_server_that_is_not_there_is_refused(act: str) -> None:
    with pytest.raises(UnknownServer, match="alhpa"):
        await ACTS[act](viewer_of(OperatorStage().context(), server="alhpa"), {})


async def test_an_answer_without_a_login_is_refused() -> None:
    with pytest.raises((Refused, LoginRefused), match="no login is under way"):
        await ACTS["login-answer"](viewer_of(OperatorStage().context(), server="alpha"), {"url": "http://x"})


@pytest.mark.parametrize(("lacks", "kind"), [("API_KEY", "password"), ("REGION", "text")])
async def test_what_looks_like_a_credential_is_hidden_while_it_is_typed(lacks: str, kind: str) -> None:
    stage = OperatorStage()
    remedy = Remedy("It lacks it.", "`mcpd set`", lacks=lacks)
    stage.stage.becomes("alpha", ServerState.FAILED, reason="it lacks it", remedy=remedy)
    seen = await drawn(SERVER, viewer_of(stage.context(), server="alpha"))
    kinds = [each["type"] for tag, each in seen.tags if tag == "input" and each["name"] == "value"]
    assert kinds == [kind]


async def test_what_a_server_lacks_is_asked_for_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(monkeypatch, changes, Printed(0, "it is kept"), Printed(0, "restart is done"))
    stage = OperatorStage()
    lacks = Remedy("It lacks it.", "`mcpd secret set deploy-key`", lacks="keyring:deploy-key")
    stage.stage.becomes("alpha", ServerState.FAILED, reason="it lacks it", remedy=lacks)
    viewer = viewer_of(stage.context(), server="alpha")
    for page, query in ((SERVERS, "view=table"), (SERVERS, ""), (SERVER, "")):
        seen = await drawn(page, viewer_of(stage.context(), query=query, server="alpha"))
        assert "/ui/servers/alpha/give" in seen.forms
        kinds = [each["type"] for tag, each in seen.tags if tag == "input" and each["name"] == "value"]
        assert kinds == ["password"]
        seen = await drawn(page, viewer_of(stage.context(), query=query, server="alpha", may_change=False))
        assert (seen.forms, "What helps:" in seen.text) == ([], True)
    with pytest.raises(Refused, match="does not lack OTHER any more"):
        await ACTS["give"](viewer, {"lacks": "OTHER", "value": "x"})
    with pytest.raises(InvalidArguments, match="write the value"):
        await ACTS["give"](viewer, {"lacks": "keyring:deploy-key", "value": " "})
    told = await ACTS["give"](viewer, {"lacks": "keyring:deploy-key", "value": "s3cret "})
    assert told == Notice("restart is done", server="alpha")
    assert lines.ran == [(["secret", "set", "deploy-key"], "s3cret", []), (["restart", "alpha"], "", [])]


async def test_a_refused_host_has_a_button_that_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(monkeypatch, changes, Printed(1, ""))
    allow = {"api.x": "mcpd allow-host alpha api.x", "10.0.0.1": ""}
    refused = [{"host": host, "allow": command} for host, command in allow.items()]
    monkeypatch.setattr(status_commands, "_sandbox", lambda *_: {"mode": "strict", "refused": refused})
    viewer = viewer_of(OperatorStage().context(), server="alpha")
    assert "1 host refused" in (await drawn(SERVERS, viewer)).text
    page = await drawn(SERVER, viewer)
    assert ("Its sandbox refused api.x" in page.text, "10.0.0.1" in page.text) == (True, False)
    assert "/ui/servers/alpha/allow-host" in page.forms
    await ACTS["allow-host"](viewer, {"host": "api.x"})
    assert [words for words, _, _ in lines.ran] == [["allow-host", "alpha", "api.x"]]


@pytest.mark.parametrize("query", ["", "view=table"])
async def test_a_package_without_a_version_is_not_pinned_and_has_a_button(query: str) -> None:
    commands = {
        "loose": "npx -y x",
        "too": "uvx y",
        "held": "npx -y x@1.0",
        "image": "docker run -i x/y",
        "tagged": "docker run -i x/y:1.2",
        "in a script": "sh -c 'exec npx -y x'",
        "interpreter": "uvx --with x==1.0 python a.py",
    }
    split = {name: shlex.split(command) for name, command in commands.items()}
    servers = {name: {"command": words[0], "args": words[1:]} for name, words in split.items()}
    page = await drawn(
        SERVERS, viewer_of(operator_context(Stage(config_of({"mcpServers": servers}))), query=query)
    )
    assert page.text.count("not pinned") == 3
    pinning = [str(each).removesuffix("/pin") for each in page.forms if str(each).endswith("/pin")]
    assert pinning == ["/ui/chosen", *(f"/ui/servers/{name}" for name in ("loose", "too", "image"))]


# --- what is said of a server in the list and on its page ----------------------------------------------------


async def test_the_next_try_of_a_degraded_server_is_that_of_its_lists() -> None:
    stage = OperatorStage()
    stage.stage.becomes("alpha", ServerState.DEGRADED)
    problem = stage.stage.catalog.value.servers["alpha"].status.why
    stage.alpha.list_status = type(stage.alpha.list_status)(problem=problem, next_at=1234.4)
    assert server_facts(stage.context(), "alpha", {})["nextRetryAt"] == 1234


# --- the page of all servers ---------------------------------------------------------------------------------


def three() -> OperatorStage:
    """A failed server, a ready one and one that is off, in another order."""
    servers = {name: {"command": "unused", "enabled": name != "off"} for name in ("alpha", "off", "sick")}
    stage = Stage(config_of({"mcpServers": servers}))
    stage.becomes(
        "sick",
        ServerState.FAILED,
        reason=HOSTILE,
        cause=Cause.COMMAND_NOT_FOUND,
        remedy=Remedy(f"There is no program {HOSTILE}.", "Install it."),
        next_retry_at=2e9,
    )
    return OperatorStage(stage)


async def test_among_the_well_those_whose_calls_fail_come_first() -> None:
    daemon = OperatorStage()
    assert shown(daemon.context(), {}) == ["alpha", "beta"]
    daemon.servers["beta"].stats.record((0.1,), ok=False)
    assert shown(daemon.context(), {}) == ["beta", "alpha"]
    assert shown(daemon.context(), {"sort": "name"}) == ["alpha", "beta"]


@cases("query", "names")
async def test_the_worst_is_first_and_a_query_chooses(query: str, names: list[str]) -> None:
    viewer = viewer_of(three().context(), query=query)
    assert shown(viewer.context, viewer.query) == names
    rows = [each["server"]["name"] for each in (await values_of(SERVERS, viewer)).values() if "server" in each]
    assert rows == names


async def test_a_row_says_why_what_helps_and_when_it_is_tried_again() -> None:
    page = await drawn(SERVERS, viewer_of(three().context()))
    assert "What helps: Install it" in page.text
    assert "next try in" in page.text
    assert page.is_harmless()
    assert {"/ui/servers/sick", "/ui/servers/sick?tab=logs"} <= {*page.links}
    assert {"/ui/servers/sick/restart", "/ui/servers/off/enable"} <= {*page.forms}


async def test_the_settings_say_what_holds_and_what_is_a_default() -> None:
    written = {"command": "x", "timeouts": {"call": 7}, "trust": "none", "limits": {"cpu": 1.5}}
    stage = OperatorStage(Stage(config_of({"mcpServers": {"alpha": written}})))
    page = await drawn(SERVER, viewer_of(stage.context(), query="tab=settings", server="alpha"))
    rows = page.text.replace("\n", " ")
    assert "timeouts.call7 " in rows
    assert "timeouts.callMax600 default" in rows
    assert "limits.cpu1.5 " in rows
    assert "limits.memoryBytesno limit default" in rows
    assert "Trustnone " in rows
    assert "Sandboxnone default" in rows


async def test_what_runs_is_shown_without_a_secret_that_a_shell_would_quote() -> None:
    written = {"command": "x", "args": ["--token", "ab'cd9x8y7Zk2mQ", "--to", "a b"]}
    stage = OperatorStage(Stage(config_of({"mcpServers": {"alpha": written}})))
    context = stage.context()
    context.redact.learn(context.config)
    page = await drawn(SERVER, viewer_of(context, query="tab=settings", server="alpha", may_change=False))
    assert "x --token [redacted] --to 'a b'" in page.text
