"""Calls of what waits for approval: their user is asked, once, and approves one form for every client."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.catalog.snapshot import fold
from daemon.catalog.trust import HeldBecause
from daemon.clients.approvals import AGAIN_SECONDS, ASK_SECONDS, MAX_DESCRIBED, MAX_NAME, REFUSED_SECONDS
from daemon.clients.client import Principal
from daemon.clients.notifications import WORKSPACE_SECONDS
from daemon.config.lock_file import Lock, LockedServer
from daemon.facts import Approved, Configured, DefinitionsListed
from daemon.history.event import Event, EventKind
from daemon.model import Kind
from daemon.setup.approving import Approver
from tests.fakes_upstream import Client, Stage, error_of, tool, tools_of
from tests.unit.cases import cases
from tests.unit.clients.inputs import ABLE
from tests.unit.clients.instanced import divided
from tests.unit.clients.permissions.agreeing import META, accept, answer_to, asked, call_of, greeted, reply

SURFACES = ["category", "browse", "search", "search-wrapped", "load", "full"]
PATH = {"type": "object", "properties": {"path": {"type": "string"}}}
OLD = tool("echo", description="Says it again.")
NEW = tool("echo", description="Says more.", inputSchema=PATH)
NEWER = tool("echo", description="Says the most.")
OTHER_USER = Principal(owner="uid 7: ")


@attrs.define
class Trusting:
    """A stage whose server has changed a tool that a client may have seen, and the approvals of its users."""

    stage: Stage
    noted: list[Event] = attrs.field(factory=list)
    told: trio.Event = attrs.field(factory=trio.Event)
    """Set: approvals come to the catalog."""

    def change(self, *definitions: Any) -> None:
        self.stage.lists("alpha", *definitions)

    def held(self) -> dict[str, HeldBecause]:
        found = self.stage.catalog.value.servers["alpha"].tool_list.held
        return {name: each.because for name, each in found.items()}

    async def client(self, nursery: trio.Nursery, *, modern: bool = False) -> Client:
        return await (self.stage.client(nursery) if modern else greeted(self.stage, nursery))


def trusting(directory: Path, surface: str = "full", categories: Any = None) -> Trusting:
    """Its servers have listed `echo`, which is approved, and nothing else."""
    profile = {"surface": surface.removesuffix("-wrapped"), "autoLoad": True}
    stage = Stage(listed=False, trust="changes", profiles={"default": profile}, categories=categories or {})
    found = Trusting(stage)
    found.told.set()

    async def settle() -> None:
        await trio.lowlevel.checkpoint()
        await found.told.wait()

    registry: Any = SimpleNamespace(catalog=stage.catalog, tell=stage.learn, settle=settle)
    approver = Approver(registry=registry, note=found.noted.append, wall=lambda: 1.0, directory=directory)
    stage.context = msgspec.structs.replace(stage.context, approve=approver.approve)
    stage.learn(Approved())
    for server in ("alpha", "beta"):
        stage.lists(server, OLD)
    return found


@pytest.fixture
def surface() -> str:
    return "full"


@pytest.fixture
def trust(tmp_path: Path, surface: str) -> Trusting:
    return trusting(tmp_path, surface)


@pytest.fixture(params=[False, True], ids=["handshake", "modern"])
def modern(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


class Asking:
    """A client of either era whose call is asked about."""

    def __init__(self, client: Client, surface: str = "full", *, modern: bool) -> None:
        self.client, self.modern, self.surface = client, modern, surface
        self._numbers: Iterator[int] = iter(range(1, 100))
        self._open = 0

    async def call(self, name: str = "echo", **more: Any) -> None:
        self._open = next(self._numbers)
        meta = {"_meta": META} if self.modern else {}
        params = {**call_of(self.surface, name), **meta, **more}
        self._params = {**call_of(self.surface, name), **meta}
        await self.client.ask("tools/call", params, request_id=self._open)

    async def question(self) -> dict[str, Any]:
        """What the user is asked, and how to answer."""
        if not self.modern:
            return await asked(self.client)
        result = (await answer_to(self.client, self._open))["result"]
        assert result["resultType"] == "input_required", result
        (found,) = result["inputRequests"].values()
        return {**found, "state": result["requestState"]}

    async def answer(self, question: dict[str, Any], answer: Any) -> None:
        if not self.modern:
            await reply(self.client, question, answer)
            return
        self._open = next(self._numbers)
        responses = {} if answer is None else {"inputResponses": {"permission": answer}}
        params = {**self._params, "requestState": question["state"], **responses}
        await self.client.ask("tools/call", params, request_id=self._open)

    async def result(self) -> dict[str, Any]:
        return await answer_to(self.client, self._open)

    async def error(self) -> dict[str, Any]:
        return error_of(await self.result())


async def asking(trust: Trusting, nursery: trio.Nursery, surface: str = "full", *, modern: bool) -> Asking:
    return Asking(await trust.client(nursery, modern=modern), surface, modern=modern)


@pytest.fixture
async def client(trust: Trusting, nursery: trio.Nursery, surface: str, modern: bool) -> Asking:
    """A client of each era."""
    return await asking(trust, nursery, surface, modern=modern)


other = client
"""One more, whose user is another."""


@pytest.fixture
async def older(trust: Trusting, nursery: trio.Nursery) -> Asking:
    """A client of the handshake era alone."""
    return await asking(trust, nursery, modern=False)


async def question_about_new(trust: Trusting, client: Asking) -> dict[str, Any]:
    """What the user of a client is asked whose call waits for them."""
    trust.change(NEW)
    await client.call()
    return await client.question()


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_new_tool_runs_once_its_user_has_approved_it(
    trust: Trusting, client: Asking, nursery: trio.Nursery, surface: str, modern: bool
) -> None:
    trust.change(OLD, tool("add"))
    await client.call("add")
    question = await client.question()
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == (
        "mcpd asks: may models use alpha/add as it is now? It waits for approval: nobody approved it yet."
        ' Its description says: "Does add."'
    )
    assert question["params"]["requestedSchema"]["properties"]["choice"]["enum"] == ["approve", "refuse"]
    assert not trust.stage.alpha.sent
    # A user is asked once about calls that come together.
    first = client._open
    await client.call("add")
    assert "waits for an operator's approval" in (await client.error())["message"]
    client._open = first
    await client.answer(question, accept("approve"))
    sent = await trust.stage.alpha.wait_sent()
    assert sent.tool == "add"
    trust.stage.answer(sent)
    assert (await client.result())["result"]["content"] == []
    assert not trust.held()
    (event,) = trust.noted
    who = {"names": ["add"], "by": "token without a name (session #1)"}
    assert (event.kind, event.server, event.details) == (EventKind.APPROVED, "alpha", who)
    # It is so for everybody.
    other = await asking(trust, nursery, surface, modern=not modern)
    await other.call("add")
    await trust.stage.alpha.wait_sent(2)


async def test_a_client_that_was_shown_the_old_form_is_shown_the_approved_one_first(
    trust: Trusting, older: Asking
) -> None:
    await older.client.request("tools/list", request_id=99)
    trust.change(NEW)
    await older.call()
    question = await older.question()
    assert question["params"]["message"] == (
        "mcpd asks: may models use alpha/echo as it is now? It waits for approval: it changed: description,"
        " argument path added. `mcpd approve alpha/echo --diff` shows the change."
    )
    await older.answer(question, accept("approve"))
    error = await older.error()
    assert (error["code"], error["definition"]["description"]) == ("ToolChanged", "Says more.")
    await older.call()
    await trust.stage.alpha.wait_sent()


@cases("answer", "why")
async def test_without_approval_nothing_is_sent_and_the_model_is_told_why(
    trust: Trusting, client: Asking, answer: Any, why: str
) -> None:
    await client.answer(await question_about_new(trust, client), answer)
    error = await client.error()
    assert (error["code"], error["tool"], error["because"]) == ("ToolHeld", "echo", "changed")
    assert error["message"].startswith(
        f"'echo' waits for approval, and {why}. Nothing was sent. Do not call it"
    )
    # Who has refused needs no way around it.
    assert ("`mcpd approve alpha/echo`" in error["message"]) is (answer != accept("refuse"))
    assert not trust.stage.alpha.sent
    assert trust.held() == {"echo": HeldBecause.CHANGED}
    assert not trust.noted


async def test_a_user_who_does_not_answer_has_not_approved(
    trust: Trusting, older: Asking, autojump_clock: MockClock
) -> None:
    trust.change(NEW)
    began = trio.current_time()
    await older.call(_meta={"progressToken": 5})
    await older.question()
    assert "the user has not answered within" in (await older.error())["message"]
    assert trio.current_time() - began == pytest.approx(ASK_SECONDS, abs=1)
    # Nor is a user who is away asked about the next call at once.
    await older.call()
    assert (await older.error())["code"] == "ToolHeld"


@pytest.mark.parametrize("on_its_way", [False, True])
async def test_a_form_that_comes_while_the_user_is_asked_or_the_approval_is_on_its_way_stays_held(
    trust: Trusting, client: Asking, *, on_its_way: bool
) -> None:
    question = await question_about_new(trust, client)
    if on_its_way:
        trust.told = trio.Event()
        await client.answer(question, accept("approve"))
        await trio.testing.wait_all_tasks_blocked()
        trust.change(NEWER)
        trust.told.set()
    else:
        trust.change(NEWER)
        await client.answer(question, accept("approve"))
    assert (await client.error())["code"] == "ToolHeld"
    assert trust.held() == {"echo": HeldBecause.CHANGED}
    assert on_its_way or not trust.noted
    assert not trust.stage.alpha.sent


async def test_a_tool_that_is_back_as_it_was_runs_whatever_the_answer_approves(
    trust: Trusting, client: Asking
) -> None:
    question = await question_about_new(trust, client)
    trust.change(OLD)
    await client.answer(question, accept("approve"))
    await trust.stage.alpha.wait_sent()
    trust.change(NEW)
    assert trust.held() == {"echo": HeldBecause.CHANGED}


@pytest.mark.parametrize(("choice", "seconds"), [("refuse", REFUSED_SECONDS), ("later", AGAIN_SECONDS)])
async def test_a_user_who_has_not_approved_is_not_asked_again_at_once(
    trust: Trusting, client: Asking, other: Asking, autojump_clock: MockClock, choice: str, seconds: float
) -> None:
    await client.answer(await question_about_new(trust, client), accept(choice))
    await client.error()
    for wait in (0.0, seconds - 1):
        await trio.sleep(wait)
        await client.call()
        error = await client.error()
        assert error["code"] == "ToolHeld"
        assert "waits for an operator's approval" in error["message"]
    # Another tool, and another client's user, are another question.
    await other.call()
    await other.question()
    trust.change(NEW, tool("add"))
    trust.stage.lists("beta", NEW)
    for name in ("add", "beta__echo"):
        await client.call(name)
        await client.question()
    await trio.sleep(1)
    await client.call()
    await client.question()


@pytest.mark.parametrize("principal", [OTHER_USER, Principal(owner="token ci: ", token="ci", keeps=False)])
async def test_only_the_daemons_own_user_is_asked(
    trust: Trusting, nursery: trio.Nursery, principal: Principal, modern: bool
) -> None:
    trust.change(NEW)
    guest = await trust.stage.connect(nursery, principal)
    if not modern:
        params = {"protocolVersion": "2025-11-25", "capabilities": ABLE}
        await guest.client.request("initialize", params, request_id=0)
    client = Asking(guest.client, modern=modern)
    await client.call()
    assert (await client.error())["code"] == "ToolHeld"


async def test_a_client_that_cannot_be_asked_gets_the_error(trust: Trusting, nursery: trio.Nursery) -> None:
    trust.change(NEW)
    client = Asking(await greeted(trust.stage, nursery, {"elicitation": {"url": {}}}), modern=False)
    await client.call()
    error = await client.error()
    assert (error["code"], error["approve"]) == ("ToolHeld", "mcpd approve alpha/echo")
    assert error["message"].startswith("'echo' waits for an operator's approval: it changed")


async def test_no_user_can_agree_to_what_the_lock_cannot_judge(trust: Trusting, client: Asking) -> None:
    stage = trust.stage
    config = attrs.evolve(stage.catalog.value.config, lock=Lock(problem="it is torn"))
    stage.learn(Configured(config=config, now=1.0))
    assert trust.held() == {"echo": HeldBecause.LOCK}
    await client.call()
    assert "mcpd.lock does not approve it" in (await client.error())["message"]


async def test_a_lock_that_cannot_be_written_approves_nothing(
    trust: Trusting, client: Asking, tmp_path: Path
) -> None:
    stage = trust.stage
    (tmp_path / "mcpd.lock").mkdir()
    identity = stage.catalog.value.servers["alpha"].gate.identity
    lock = Lock(servers={"alpha": LockedServer(identity=identity)})
    stage.learn(Configured(config=attrs.evolve(stage.catalog.value.config, lock=lock), now=1.0))
    await client.call()
    await client.answer(await client.question(), accept("approve"))
    error = await client.error()
    assert error["code"] == "CannotApprove"
    assert str(tmp_path / "mcpd.lock") in error["message"]
    assert trust.held() == {"echo": HeldBecause.NEW}
    assert not stage.alpha.sent


async def test_the_user_of_a_call_in_line_is_asked_when_its_tool_is_held(
    trust: Trusting, client: Asking
) -> None:
    await client.call()
    queued = await trust.stage.alpha.wait_sent()
    trust.change(NEW)
    assert not queued.call.check(), "it has left the line for its user"
    await client.answer(await client.question(), accept("approve"))
    assert (await trust.stage.alpha.wait_sent(2)).tool == "echo"


@pytest.mark.parametrize("line", [False, True], ids=["at once", "in line"])
async def test_between_a_notice_and_the_new_list_no_call_is_sent_where_trust_judges_the_list(
    trust: Trusting, nursery: trio.Nursery, line: bool
) -> None:
    alpha = trust.stage.alpha
    client = Asking(await greeted(trust.stage, nursery, {}), modern=False)
    config = attrs.evolve(trust.stage.catalog.value.config, lazy=False)
    trust.stage.learn(Configured(config=config, now=1.0))
    alpha.is_stale = not line
    await client.call()
    if line:
        queued = await alpha.wait_sent()
        alpha.is_stale = True
        assert not queued.call.check()
    await trio.testing.wait_all_tasks_blocked()
    trust.change(NEW)
    alpha.is_current()
    assert (await client.error())["code"] == "ToolHeld"
    assert len(alpha.sent) == line


async def test_what_one_instance_alone_lists_is_approved_by_its_user(
    trust: Trusting, older: Asking, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    instances = divided(trust.stage)
    await older.call()
    await trio.sleep(WORKSPACE_SECONDS + 1)  # the client does not say its roots
    (instance,) = instances.running.values()
    new = tools_of("alpha", NEW)
    listed = DefinitionsListed(kind=Kind.TOOL, server="alpha", incarnation=1, definitions=new)
    monkeypatch.setattr(instance, "own_catalog", lambda catalog: fold(catalog, listed))
    await older.call()
    await older.answer(await older.question(), accept("approve"))
    await instance.wait_sent(2)


async def test_a_call_in_line_whose_name_means_another_tool_now_is_not_sent_to_the_held_one(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    trust = trusting(tmp_path, "category", {"forms": {"server": "alpha"}})
    client = await trust.client(nursery)
    await client.call("forms", "echo")
    queued = await trust.stage.alpha.wait_sent()
    trust.change(NEW)
    stage = trusting(tmp_path, "category", {"forms": {"server": "beta"}}).stage
    trust.stage.learn(Configured(config=stage.catalog.value.config, now=1.0))
    with pytest.raises(Exception, match="no longer has this name"):
        queued.call.check()


async def test_a_call_as_a_task_is_held_and_asked_about(trust: Trusting, older: Asking) -> None:
    trust.change(NEW)
    await older.call(task={"ttl": 1000})
    await older.answer(await older.question(), accept("refuse"))
    error = (await older.result())["error"]
    assert error["data"]["code"] == "ToolHeld"
    assert not trust.stage.alpha.sent


async def test_a_definition_that_is_asked_for_is_asked_about(
    tmp_path: Path, nursery: trio.Nursery, modern: bool
) -> None:
    trust = trusting(tmp_path, "load")
    trust.change(OLD, tool("add"))
    client = await asking(trust, nursery, "load", modern=modern)
    meta = {"_meta": META} if modern else {}
    client._params = {"name": "load_mcp_tool", "arguments": {"names": ["add"]}, **meta}
    client._open = 50
    await client.client.ask("tools/call", client._params, request_id=50)
    await client.answer(await client.question(), accept("approve"))
    assert "add" in (await client.result())["result"]["structuredContent"]["tools"]


# --- the question --------------------------------------------------------------------------------------------


async def message_about(client: Asking, name: str) -> str:
    await client.client.ask("tools/call", {"name": name, "arguments": {}}, request_id=1)
    text: str = (await client.question())["params"]["message"]
    return text


async def test_a_description_is_quoted_on_one_line_and_hides_nothing(trust: Trusting, older: Asking) -> None:
    said = 'Adds.\n\nmcpd asks: "fine"?\u202e \U000e0041' + "x" * 2 * MAX_DESCRIBED
    trust.change(OLD, tool("add", description=said))
    text = await message_about(older, "add")
    assert text.count("\n") == 0
    assert r'Its description begins: "Adds.  mcpd asks: \"fine\"?\\u{202e} \\u{e0041}xxx' in text
    assert len(text) < 2 * MAX_DESCRIBED
    assert text.startswith("mcpd asks: may models use alpha/add as it is now?")


async def test_names_that_a_server_chose_are_quoted(trust: Trusting, older: Asking) -> None:
    names = ["a. Approve it", "b\u202e", "c" + "d" * MAX_NAME]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    trust.change(tool("echo", description=OLD["description"], inputSchema=schema))
    text = await message_about(older, "echo")
    assert r'it changed: arguments "a. Approve it", b\u{202e}, c' + "d" * (MAX_NAME - 1) + " added." in text


async def test_a_tool_without_a_description_is_asked_about(trust: Trusting, older: Asking) -> None:
    trust.change(OLD, {"name": "bare", "inputSchema": {"type": "object"}})
    assert (await message_about(older, "bare")).endswith('Its description says: ""')
