"""The page of what waits for approval: a line each, the difference on demand, and what its buttons approve."""

import json
from typing import Any

import attrs
import pytest

from daemon.config.lock_file import Lock, LockedLine, LockedServer
from daemon.console.pages.approval_page import APPROVALS_PAGE, APPROVE, LONGEST, SHOWN
from daemon.console.pages.server_pages import SERVER, SERVERS
from daemon.console.pages.tool_pages import TOOL_PAGE, TOOLS_PAGE
from daemon.errors import InvalidArguments
from daemon.facts import Approved, Configured
from daemon.model import Kind
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.console.pages.drawing import Seen, drawn, values_of, viewer_of
from tests.unit.operators.stage import operator_context


def tool(name: str, description: str = "Says it.", **more: Any) -> dict[str, object]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


LATER = (tool("echo", "Says it loudly."), tool("new"), tool("add"))


def held(*alpha: dict[str, object]) -> Stage:
    """Alpha, whose first list was `echo` and `add`, and beta, of which nothing was approved."""
    servers = {"alpha": {"command": "a", "trust": "changes"}, "beta": {"command": "b", "trust": "none"}}
    stage = Stage(config_of({"mcpServers": servers}), listed=False)
    stage.learn(Approved())
    stage.lists("beta", tool("push"))
    stage.lists("alpha", tool("echo"), tool("add"))
    stage.lists("alpha", *(alpha or LATER))
    return stage


def form_of(stage: Stage, server: str, name: str) -> dict[str, str]:
    """What a button sends of a tool."""
    found = stage.catalog.value.held((server, name))
    assert found is not None
    return {f"{server}/{name}": found.definition.schema_hash}


def offered(stage: Stage, server: str) -> list[str]:
    return list(stage.catalog.value.servers[server].tools or {})


def buttons(page: Seen) -> dict[str, dict[str, str]]:
    """The forms that each button sends, by its name."""
    found, sends = {}, dict[str, str]()
    for tag, attributes in page.tags:
        if tag == "input" and attributes["name"] == "forms":
            sends = json.loads(attributes["value"] or "")
        if tag == "button":
            found[attributes.get("aria-label") or "all"] = sends
    return found


async def test_each_that_waits_has_a_line_by_server_with_why_and_a_button_that_sends_the_shown_form() -> None:
    stage = held()
    page = await drawn(APPROVALS_PAGE, viewer_of(operator_context(stage)))
    assert "3 wait for approval." in page.text
    assert "it changed: description" in page.text
    assert page.text.count("nobody approved it yet") == 2
    assert {"/ui/servers/alpha", "/ui/servers/beta", "/ui/approvals?server=alpha&name=echo"} <= {*page.links}
    echo, new = (form_of(stage, "alpha", name) for name in ("echo", "new"))
    push = form_of(stage, "beta", "push")
    assert buttons(page) == {
        "all": {**echo, **new, **push},
        "Approve these 2 of alpha": {**echo, **new},
        "Approve alpha/echo": echo,
        "Approve alpha/new": new,
        "Approve beta/push": push,
    }
    assert {*page.forms} == {"/ui/approvals/approve"}


async def test_a_form_that_changed_meanwhile_stays_held_and_the_page_says_so() -> None:
    stage = held()
    shown = {"alpha/no": "", **form_of(stage, "alpha", "echo"), **form_of(stage, "alpha", "new")}
    shown |= form_of(stage, "beta", "push")
    stage.lists("alpha", tool("echo", "Deletes all."), tool("new"), tool("add"))
    stage.lists("beta", tool("other"))
    told = await APPROVE.act(viewer_of(operator_context(stage)), {"forms": json.dumps(shown)})
    assert told == (
        "Approved: alpha/new. Changed since the page showed it, and still waits: alpha/echo. No longer waits:"
        " alpha/no, beta/push."
    )
    assert offered(stage, "alpha") == ["new", "add"]


@pytest.mark.parametrize("written", ["", "{}", "[]", '["alpha/echo"]', '{"alpha/echo": 1}', "{"])
async def test_a_form_that_names_nothing_is_refused(written: str) -> None:
    with pytest.raises(InvalidArguments, match="use a button of the page"):
        await APPROVE.act(viewer_of(operator_context(held())), {"forms": written})


async def test_the_difference_is_shown_by_member_and_argument_or_all_of_what_is_new() -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    stage = held(tool("echo", "Says it loudly.", inputSchema=schema), tool("add"))
    viewer = viewer_of(operator_context(stage), query="server=alpha&name=echo")
    values = await values_of(APPROVALS_PAGE, viewer)
    assert values["held-alpha"]["members"] == [
        ("description", "Says it.", "Says it loudly."),
        ("argument to", None, '{\n  "type": "string"\n}'),
    ]
    page = await drawn(APPROVALS_PAGE, viewer)
    assert "Says it.Says it loudly." in "".join(page.text.split("\n")).replace("  ", "")
    assert "Approve alpha/echo" in buttons(page)
    page = await drawn(APPROVALS_PAGE, viewer_of(operator_context(stage), query="server=beta&name=push"))
    assert "Every part is new." in page.text
    assert "Says it." in page.text


async def test_a_lock_that_has_only_the_digest_of_a_form_is_told_apart_from_a_new_tool() -> None:
    stage = held()
    catalog = stage.catalog.value
    line = LockedLine(hash="0" * 64, parts={"description": "1", "inputSchema": "2"})
    server = LockedServer(identity=catalog.servers["beta"].gate.identity, tools={"push": line})
    lock = Lock(servers={"beta": server})
    stage.learn(Configured(config=attrs.evolve(catalog.config, lock=lock), now=1.0))
    page = await drawn(APPROVALS_PAGE, viewer_of(operator_context(stage), query="name=push"))
    assert "it changed: description, inputSchema" in page.text
    assert "mcpd does not have the approved form: this is the whole new form." in page.text


async def test_a_text_that_is_too_long_says_so() -> None:
    context = operator_context(held(tool("echo", "x" * (LONGEST + 1)), tool("add", "y" * LONGEST)))
    cut, whole = [
        await drawn(APPROVALS_PAGE, viewer_of(context, query=f"name={name}")) for name in ("echo", "add")
    ]
    assert ("x" * LONGEST in cut.text, "x" * (LONGEST + 1) in cut.text) == (True, False)
    assert ("Cut here" in cut.text, "Cut here" in whole.text) == (True, False)


async def test_prompts_and_templates_wait_there_too() -> None:
    stage = held()
    stage.offers("beta", Kind.PROMPT, "review")
    stage.offers("beta", Kind.TEMPLATE, "file:///{x}")
    page = await drawn(APPROVALS_PAGE, viewer_of(operator_context(stage), query="server=beta"))
    assert ["beta/prompt:review"] in [[*each] for each in buttons(page).values()]
    assert "/ui/approvals?server=beta&name=template%3Afile%3A%2F%2F%2F%7Bx%7D" in page.links


async def test_thousands_have_pages_and_a_button_takes_those_of_its_page() -> None:
    stage = held(*(tool(f"t{number}") for number in range(2 * SHOWN)))
    context = operator_context(stage)
    first = await drawn(APPROVALS_PAGE, viewer_of(context))
    assert f"{2 * SHOWN + 1} wait for approval; this page shows {SHOWN}." in first.text
    assert len(buttons(first)["all"]) == SHOWN
    assert len(first.html) < 200_000
    assert first.links[-1] != "/ui/approvals?page=2"
    assert "/ui/approvals?page=2" in first.links
    last = await drawn(APPROVALS_PAGE, viewer_of(context, query="page=9"))
    assert [*buttons(last)] == ["Approve beta/push"]
    await APPROVE.act(viewer_of(context), {"forms": json.dumps(buttons(first)["all"])})
    after = await drawn(APPROVALS_PAGE, viewer_of(context))
    assert f"{SHOWN + 1} wait for approval" in after.text


async def test_the_pages_of_its_server_of_the_tool_and_of_the_categories_are_marked() -> None:
    context = operator_context(held())
    assert "/ui/approvals?server=alpha" in (await drawn(SERVERS, viewer_of(context))).links
    server = await drawn(SERVER, viewer_of(context, server="alpha"))
    assert "2 held" in server.text
    assert "/ui/approvals?server=alpha" in server.links
    listed = await drawn(TOOLS_PAGE, viewer_of(context, query="server=alpha"))
    assert "heldit changed: description" in listed.text
    one = await drawn(TOOL_PAGE, viewer_of(context, server="alpha", tool="echo"))
    assert "it changed: description" in one.text
    assert "Approve alpha/echo" in buttons(one)
    values = await values_of(TOOLS_PAGE, viewer_of(context))
    counts = {each["name"]: (each["tools"], each["held"]) for each in values["category-list"]["categories"]}
    assert counts == {"alpha": (3, 2), "beta": (1, 1)}
