"""Reading a server's list: what is told of it, what is wrong with it, and when it is worth another look."""

import json
from typing import Any

import attrs
import pytest
from msgspec import Raw

from daemon.causes import HEALTHY, Cause, Reason
from daemon.config.redaction import secrets, with_doubts
from daemon.model import Kind, Tool
from daemon.safety.legible import screened
from daemon.safety.redact import CUT, REASON, Redactor
from daemon.upstreams.server_lists import EMPTY, NOTHING, QUARANTINED_NAMED, Warnings, screen
from daemon.wire.envelope import RemoteError
from tests.unit.cases import cases
from tests.unit.config.reading import config_of
from tests.unit.upstreams.listing_server import GREETING, Lists


@pytest.mark.parametrize(("others", "wrong"), [(("prompts",), HEALTHY), ((), NOTHING)])
async def test_a_server_without_tools_is_well_if_it_is_good_for_something_else(
    others: tuple[str, ...], wrong: Reason
) -> None:
    scene = Lists(greeting=attrs.evolve(GREETING, lists_tools=False, others=others))
    scene.connection.failure = RemoteError(-32601, "method not found")
    assert await scene.tools.read() == ("", wrong)
    (fact,) = scene.told()
    assert fact.definitions == ()


async def test_a_list_of_which_nothing_can_be_used_says_why() -> None:
    scene = Lists()
    scene.connection.members = {"inputSchema": 5}
    text = "it lists 1 tool, but none can be used; echo: its inputSchema is not an object"
    data: dict[str, str | int | float] = {
        "count": 1,
        "tool": "echo",
        "error": "its inputSchema is not an object",
    }
    assert await scene.tools.read() == ("", Reason(text, Cause.TOOLS_UNUSABLE, data))


async def test_what_a_server_refuses_with_is_bounded() -> None:
    scene = Lists()
    scene.connection.failure = RemoteError(-32000, "s3cret is wrong " * 100_000)
    problem, _wrong = await scene.tools.read()
    assert problem.endswith(CUT)
    assert len(problem) <= 2 * REASON
    (fact,) = scene.told()
    assert fact.problem == problem


async def test_a_secret_in_a_definition_never_gets_into_the_catalog() -> None:
    scene = Lists()
    scene.lists_tools("echo", "call_s3cret", "s\u0033cret")
    scene.connection.members = {"title": "x", "description": "uses s3cret", "default": ["s3cret"]}
    assert (await scene.tools.read())[0] == ""
    (fact,) = scene.told()
    (tool,) = fact.definitions
    assert isinstance(tool, Tool)
    assert (tool.name, tool.description) == ("echo", "uses [redacted]")
    assert b"s3cret" not in tool.raw
    assert fact.quarantined.keys() == {"call_[redacted]", "[redacted]"}
    assert "name contains a secret" in fact.quarantined["[redacted]"]


async def test_tools_whose_schemas_are_completed_are_logged_once_and_told(said: list[str]) -> None:
    scene = Lists()
    scene.lists_tools("one", "two")
    scene.connection.members = {"inputSchema": {"properties": {}}}
    for _time in range(2):
        assert (await scene.tools.read())[0] == ""
    assert said == [
        'lists 2 tools without "type": "object" in its inputSchema, which MCP requires; mcpd adds it: one, two'
    ]
    fact = scene.told()[-1]
    assert screened(fact.definitions).completed == ("one", "two")


async def test_what_is_quarantined_is_logged_once_and_a_thousand_of_it_briefly(said: list[str]) -> None:
    scene = Lists()
    for tools in (["echo", "a\nb"], ["echo", "a\nb"], [f"{number}\n" for number in range(1000)]):
        scene.lists_tools(*tools)
        await scene.tools.read()
    assert sum("is quarantined" in line for line in said) == 1 + QUARANTINED_NAMED
    assert f"{1000 - QUARANTINED_NAMED} more tools are quarantined: `mcpd status --json` has them" in said


@cases("entry")
async def test_what_an_ordinary_configuration_holds_changes_no_definition(entry: dict[str, Any]) -> None:
    config = config_of({"mcpServers": {"s": entry}})
    scene = Lists(secrets=secrets(config), doubtful=with_doubts(config)[1])
    scene.lists_tools("postgres_query", "list_orders", "reset_password")
    schema = {
        "type": "object",
        "properties": {
            "password": {"type": "string", "description": "The password. Schema: public, required."},
            "customer_id": {"type": "number", "maximum": 100000},
            "customerId": {"enum": ["orders", "postgres", "public"]},
        },
        "required": ["password", "customer_id"],
    }
    scene.connection.members = {"inputSchema": schema}
    assert (await scene.tools.read())[0] == ""
    (fact,) = scene.told()
    assert [tool.name for tool in fact.definitions] == ["postgres_query", "list_orders", "reset_password"]
    assert not fact.quarantined
    assert all(json.loads(tool.raw)["inputSchema"] == schema for tool in fact.definitions)


async def test_what_a_server_says_of_itself_comes_with_its_tools_and_without_secrets() -> None:
    scene = Lists()
    scene.tools.begin(scene.connection, 4, attrs.evolve(GREETING, about="Logs in with s3cret."))
    await scene.tools.read()
    (fact,) = scene.told()
    assert fact.said is not None
    assert fact.said.about.startswith("Logs in with ")
    assert "s3cret" not in fact.said.about


async def test_a_server_that_has_listed_nothing_yet_is_worth_another_look() -> None:
    scene = Lists()
    scene.lists_tools()
    assert await scene.tools.read() == ("", EMPTY)
    assert scene.tools.is_due_soon("", EMPTY)
    scene.lists_tools("echo")
    assert await scene.tools.read() == ("", HEALTHY)
    scene.lists_tools()
    assert not scene.tools.is_due_soon(*await scene.tools.read())


def test_a_list_that_is_refused_again_and_again_is_logged_once_and_anew_after_a_success(
    said: list[str],
) -> None:
    warnings = Warnings("git", Kind.RESOURCE)
    for _ in range(3):
        warnings.of_problem("refused")
    _usable, quarantined = screen(Kind.RESOURCE, "git", [Raw(b"{}")], Redactor(()))
    warnings.of(quarantined, ())
    warnings.of_problem("refused")
    assert said == [
        "does not list its resources: refused",
        "resource (resource 1) is quarantined: has no uri",
        "does not list its resources: refused",
    ]
