"""Prompts, templates and skills that wait for approval: in no list, and refused before anything is sent."""

from typing import Any

import pytest
import trio

from daemon.catalog.trust import approval
from daemon.facts import Approved, Switched
from daemon.model import Kind
from tests.fakes_upstream import MODERN, Client, Stage, definition_of
from tests.unit.cases import cases

PROMPTS = ({"name": "greet", "description": "Says hello."}, "plain")
CHANGED = ({"name": "greet", "description": "Says goodbye."}, "plain", "new")
BOOK = {"uriTemplate": "book://{isbn}", "name": "book"}
PAGE = {"uriTemplate": "page://{n}", "name": "page"}
REFUNDS = {"uri": "skill://refunds/SKILL.md", "frontmatter": {"name": "refunds"}, "resources": "dynamic"}
NEWER = {**REFUNDS, "frontmatter": {"name": "refunds", "description": "Says goodbye."}}
INNER = {**REFUNDS, "uri": "skill://refunds/inner/SKILL.md"}
ERAS: list[dict[str, Any]] = [{}, {"_meta": MODERN}]


@pytest.fixture
def stage() -> Stage:
    """Of alpha, a changed prompt, a new one, a new template and a changed skill wait."""
    stage = Stage(trust="changes")
    stage.learn(Approved())
    for server in ("alpha", "beta"):
        stage.lists(server, "echo")
    stage.offers("alpha", Kind.PROMPT, *PROMPTS)
    stage.offers("alpha", Kind.PROMPT, *CHANGED)
    stage.offers("alpha", Kind.RESOURCE, "page://listed")
    stage.offers("alpha", Kind.TEMPLATE, BOOK)
    stage.offers("alpha", Kind.TEMPLATE, BOOK, PAGE)
    stage.offers("alpha", Kind.SKILL, REFUNDS, INNER)
    stage.offers("alpha", Kind.SKILL, NEWER, INNER)
    for kind in (Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE, Kind.SKILL):
        stage.offers("beta", kind)
    return stage


def prompt(name: str) -> tuple[str, dict[str, Any]]:
    return "prompts/get", {"name": name}


def argument(name: str) -> tuple[str, dict[str, Any]]:
    asked = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a", "value": "b"}}
    return "completion/complete", asked


def variable(text: str) -> tuple[str, dict[str, Any]]:
    asked = {"ref": {"type": "ref/resource", "uri": text}, "argument": {"name": "n", "value": "1"}}
    return "completion/complete", asked


def read(uri: str) -> tuple[str, dict[str, Any]]:
    return "resources/read", {"uri": uri}


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("era", ERAS, ids=["handshake", "modern"])
@cases("method", "params")
async def test_what_is_held_is_refused_before_anything_is_sent(
    stage: Stage, nursery: trio.Nursery, method: str, params: Any, era: Any, single: bool
) -> None:
    client = await stage.client(nursery)
    if single:
        await client.tell("mcpd/hello", {"servers": ["alpha"]})
    error = (await client.request(method, {**params, **era}))["error"]
    assert (error["code"], error["data"]["code"], error["data"]["server"]) == (-32602, "ToolHeld", "alpha")
    assert error["message"].startswith("ToolHeld: ")
    assert "goodbye" not in str(error)
    assert not stage.alpha.sent


@pytest.mark.parametrize("era", ERAS, ids=["handshake", "modern"])
@cases("method", "params")
async def test_what_is_approved_is_sent(
    stage: Stage, client: Client, method: str, params: Any, era: Any
) -> None:
    await client.ask(method, {**params, **era})
    assert (await stage.alpha.wait_sent()).call.method == method


async def test_no_list_has_what_is_held(client: Client) -> None:
    prompts = (await client.request("prompts/list"))["result"]["prompts"]
    found = (await client.request("resources/templates/list"))["result"]["resourceTemplates"]
    assert ([each["name"] for each in prompts], found) == (["plain"], [BOOK])
    (skill,) = (await client.request("skills/list"))["result"]["skills"]
    assert skill["uri"] == "skill://mcpd+alpha/refunds/inner/SKILL.md"


async def test_a_resource_of_a_held_template_is_not_followed(stage: Stage, client: Client) -> None:
    error = (await client.request("resources/subscribe", {"uri": "page://1"}))["error"]
    assert error["data"]["code"] == "ToolHeld"
    assert not stage.alpha.sent


@pytest.mark.parametrize(
    ("asked", "off", "code"),
    [
        (prompt("new"), "prompt:new", "PromptDisabled"),
        (prompt("new"), "", "UnknownPrompt"),
        (read("page://1"), "template:page://{n}", "UnknownResource"),
    ],
)
async def test_what_is_held_and_switched_off_is_switched_off(
    stage: Stage, client: Client, asked: Any, off: str, code: str
) -> None:
    stage.learn(Switched(off=frozenset({("alpha", off)})))
    method, params = asked
    assert (await client.request(method, params))["error"]["data"]["code"] == code


@pytest.mark.parametrize("asked", [prompt("new"), argument("new"), read("page://1")])
async def test_a_profile_without_prompts_and_resources_tells_nothing_of_them(
    nursery: trio.Nursery, asked: Any
) -> None:
    profile = {"prompts": False, "resources": False}
    stage = Stage(trust="changes", profiles={"default": profile})
    stage.learn(Approved())
    for server in ("alpha", "beta"):
        for kind in (Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE):
            stage.offers(server, kind)
    stage.offers("alpha", Kind.PROMPT, "new")
    stage.offers("alpha", Kind.TEMPLATE, PAGE)
    client = await stage.client(nursery)
    method, params = asked
    assert "ToolHeld" not in str((await client.request(method, params))["error"])


async def test_an_approved_template_reads_what_a_held_one_could_and_does_not_complete_it(
    stage: Stage, client: Client
) -> None:
    wide = {"uriTemplate": "page://{+rest}", "name": "wide"}
    stage.offers("alpha", Kind.TEMPLATE, BOOK)
    gate, seen = stage.catalog.value.servers["alpha"].gate, definition_of("alpha", Kind.TEMPLATE, wide)
    stage.learn(Approved(approvals=(approval(gate, seen, "me", 1.0),)))
    stage.offers("alpha", Kind.TEMPLATE, BOOK, wide, PAGE)
    await client.ask(*read("page://1"))
    await stage.alpha.wait_sent()
    method, params = variable("page://{n}")
    assert (await client.request(method, params, request_id=2))["error"]["data"]["code"] == "ToolHeld"
    assert len(stage.alpha.sent) == 1
