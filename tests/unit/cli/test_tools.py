"""`mcpd tools`: one question, shown as data, as a table or as a model sees it."""

import json
import re
import shlex
from typing import Any

import pytest

from daemon.cli import implementation
from daemon.cli.definition_views import (
    ALIGNED,
    LISTED,
    LONGEST,
    example_call,
    render_approval,
    render_prompts,
    render_resources,
    render_tool,
)
from daemon.cli.taking_effect import MEANWHILE
from daemon.cli.terminal import Screen
from daemon.cli.use import parse_arguments, texts
from tests.printing import err_of, out_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls
from tests.unit.cli.daemons import asked_for

main = implementation("tools").main


def tool(**changed: Any) -> dict[str, Any]:
    known = {
        "server": "git", "tool": "git_log", "description": "Shows it", "enabled": True, "listed": True,
        "available": True,
    }  # fmt: skip
    return {**known, "schemaHash": "ab", **changed}


META = {
    "name": "get-category-tools",
    "description": "Categories:\n- history",
    "inputSchema": {"type": "object"},
}
ANSWER: dict[str, Any] = {
    "categories": {
        "history": {"description": "Versions", "servers": ["git"], "tools": {"git_log": tool()}},
        "files": {"description": "", "servers": ["fs"], "tools": {"read": tool(server="fs", tool="read")}},
    },
    "surface": {"name": "category", "instructions": "Ask first.", "tools": [META]},
}


def test_json_is_the_daemons_answer_of_all_or_of_one_category(control: Controls, capsys: Captured) -> None:
    daemon = control({"tools": ANSWER})
    assert json.loads(out_of(capsys, main(["--json"]))) == ANSWER
    assert asked_for(daemon.asked) == [("tools", {})]
    assert set(json.loads(out_of(capsys, main(["--category", "history", "--json"])))["categories"]) == {
        "history"
    }
    shown = out_of(capsys, main(["--category", "history"]))
    assert ("git/git_log" in shown, "read" in shown) == (True, False)


SERVER: dict[str, Any] = {
    "server": "git", "state": "ready", "reason": "", "known": True, "isCategory": False,
    "tools": {"git_log": {"description": "Shows commits. And more.", "enabled": True, "available": True},
    "git_push": {"description": "Sends them.", "enabled": False, "available": False}},
    "held": {"git_pull\x1b": {"because": "changed", "change": {"members": ["title"]}}},
    "quarantined": {"bad\x1b": "its schema is none"},
}  # fmt: skip


def test_the_tools_of_a_server_are_named_as_they_are_typed(control: Controls, capsys: Captured) -> None:
    daemon = control({"tools": SERVER})
    lines = [" ".join(line.split()) for line in out_of(capsys, main(["git"])).splitlines()]
    assert lines == [
        "git, ready, 2 tools",
        "git/git_log Shows commits.",
        "git/git_push [disabled] Sends them.",
        "git/git_pull\\x1b waits for approval: it changed: title",
        "git/bad\\x1b is not offered: its schema is none",
        "",
        "The arguments of one: mcpd tools git/git_log",
    ]
    assert asked_for(daemon.asked) == [("tools", {"server": "git"})]
    assert json.loads(out_of(capsys, main(["git", "--json"]))) == SERVER


def test_the_surface_is_what_a_model_sees(control: Controls, capsys: Captured) -> None:
    control({"tools": ANSWER})
    shown = out_of(capsys, main(["--surface"]))
    cost = len(json.dumps(META, separators=(",", ":")))
    assert shown.startswith("instructions  10 bytes, about 2 tokens (estimate: 4 bytes each)\n  Ask first.\n")
    assert f"\nget-category-tools  {cost} bytes, about {cost // 4} tokens (estimate" in shown
    assert "\n  Categories:\n  - history\n" in shown
    assert f"surface 'category': 1 tool and the instructions, {cost + 10} bytes" in shown
    assert json.loads(out_of(capsys, main(["--surface", "--json"]))) == ANSWER["surface"]


@cases("words", "asked")
def test_any_surface_and_profile_can_be_looked_at(
    control: Controls, capsys: Captured, words: list[str], asked: dict[str, str]
) -> None:
    daemon = control({"tools": ANSWER})
    assert main(words) == 0
    assert asked_for(daemon.asked) == [("tools", asked)]


ONE: dict[str, Any] = {
    "server": "git", "tool": "git_log", "categories": ["history"], "enabled": True, "available": True,
    "state": "ready", "reason": "", "changed": None, "held": None, "approved": None,
    "definition": {"name": "git_log", "inputSchema": {"type": "object"}}, "example": {},
}  # fmt: skip


def test_one_tool_can_be_asked_for(control: Controls, capsys: Captured) -> None:
    refused = {"error": {"code": -32602, "message": "no server is named 'git_log'"}}
    named: Any = {"categories": {"all": {"tools": {"git__git_log": tool()}}}}
    daemon = control({"tool": ONE, "tools": lambda params: refused if params.get("server") else named})
    assert json.loads(out_of(capsys, main(["git/git_log", "--json"]))) == ONE
    for written in ("git/git_log", "git_log"):
        assert "example\n  mcpd call git/git_log\n" in out_of(capsys, main([written]))
    assert asked_for(daemon.asked)[:2] == [("tool", {"server": "git", "tool": "git_log"})] * 2


def test_a_category_whose_name_has_a_slash_is_found(control: Controls, capsys: Captured) -> None:
    refused = {"error": {"code": -32602, "message": "no server is named 'in'"}}
    known = {"in/out": ANSWER["categories"]["files"]}
    control({"tool": refused, "tools": {**ANSWER, "categories": known}})
    assert "read" in out_of(capsys, main(["in/out"]))
    assert err_of(capsys, main(["in/side"]), 1) == "mcpd: no server is named 'in'\n"


def test_a_surface_is_told_as_a_text_for_models_without_a_list_of_tools(
    control: Controls, capsys: Captured
) -> None:
    schema = {"type": "object"}
    log = {"name": "log", "description": "Shows commits.", "inputSchema": schema}
    tools = [log, {"name": "b", "inputSchema": {}}]
    surface = {"name": "full", "instructions": "", "tools": tools}
    control({"tools": {"categories": {}, "surface": surface}})
    assert out_of(capsys, main(["--surface", "full", "--format", "text"])) == (
        '## log\nShows commits.\nArguments (JSON Schema): {"type":"object"}\n\n'
        "## b\n\nArguments (JSON Schema): {}\n"
    )
    with pytest.raises(SystemExit):
        main(["--format", "text"])


# --- one tool as a person reads it, and the command line that calls it ---------------------------------------


SCREEN = Screen(width=100, colour=False)


def answer(**changed: Any) -> Any:
    definition = {
        "name": "log", "title": "Git log", "description": "Shows commits.\n\nNewest first.\x1b[2J",
        "inputSchema": {"type": "object", "properties": {"max": {"type": "integer", "default": 10,
        "description": "How many"}, "path": {"type": "string"}}, "required": ["path"]},
        "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False},
    }  # fmt: skip
    known: Any = {
        "server": "git", "tool": "log", "categories": ["git"], "enabled": True, "available": True,
        "state": "ready", "reason": "", "definition": definition, "changed": None, "held": None,
        "approved": None, "example": {"path": "it's"},
    }  # fmt: skip
    return {**known, **changed}


def test_a_tool_is_told_with_its_arguments_effects_and_an_example() -> None:
    assert render_tool(answer(), SCREEN).splitlines() == [
        "git/log  Git log",
        "",
        "  Shows commits.",
        "",
        "  Newest first.\\x1b[2J",
        "",
        "  Its server says: only reads, stays within its server's own data.",
        "",
        "arguments",
        "  path  text (required)",
        "  max   whole number; default 10",
        "        How many",
        "",
        "example",
        """  mcpd call git/log '{"path": "it'"'"'s"}'""",
    ]


def test_a_tool_is_told_with_its_observed_result_and_its_approval_or_the_change_that_waits_for_one() -> None:
    assert '\n\nresult, as observed\n  {"id": int}\n\nexample\n' in render_tool(
        answer(observed='{"id": int}'), SCREEN
    )
    for unknown in ({"observed": None}, {}):
        assert "observed" not in render_tool(answer(**unknown), SCREEN)
    approved = render_tool(answer(approved={"by": "me\x1b", "at": 0.0}), SCREEN)
    assert re.search(r"\n\n  Approved by: me\\x1b, (1970-01-01|1969-12-31) \d\d:\d\d:\d\d\.\n\n", approved)
    held = {"because": "changed", "change": {"argumentsCame": ["a"]}}
    waits = render_tool(answer(held=held, available=False), SCREEN)
    assert waits.startswith("git/log  Git log  [waits for approval: it changed: argument a added]\n")


# --- what waits for approval ---------------------------------------------------------------------------------


CHANGED = {"because": "changed", "change": {"members": ["description"], "argumentsCame": ["place"]}}
LOG: dict[str, Any] = {"server": "git", "name": "log", **CHANGED}
REVIEW: dict[str, Any] = {"server": "git", "name": "prompt:review\u202e", "because": "new", "change": {}}
LOG_LINE = "git/log  it changed: description, argument place added"
REVIEW_LINE = "git/prompt:review\\u202e  nobody approved it yet"


def approval(*waiting: Any, approved: Any = (), idle: Any = (), waits: str = "", **more: str) -> list[str]:
    told: Any = {"waiting": waiting, "approved": approved, "idle": idle, **more}
    return render_approval(told, waits=waits, screen=SCREEN).split("\n")


def test_what_waits_or_was_approved_is_a_line_each_and_says_how_to_look_and_to_approve() -> None:
    assert approval(LOG, REVIEW) == [
        LOG_LINE,
        REVIEW_LINE,
        "",
        "Differences in full: mcpd approve --diff git",
        "To approve: mcpd approve git/log, or mcpd approve git, or mcpd approve --all",
    ]
    assert approval({**REVIEW, "server": "a b"})[-1].startswith("To approve: mcpd approve 'a b/prompt:review")
    assert approval() == ["nothing waits for approval"]
    assert approval(idle=["git/\x1b"]) == ["git/\\x1b: nothing waits for approval"]
    assert approval(REVIEW, approved=[LOG], waits=MEANWHILE, note="lost\x1b")[:4] == [
        f"approved {LOG_LINE}",
        f"changed meanwhile, and waits: {REVIEW_LINE}",
        "lost\\x1b",
        "",
    ]
    assert approval(approved=[REVIEW]) == ["approved git/prompt:review\\u202e"]


def test_five_thousand_that_wait_are_a_screen_and_a_number() -> None:
    lines = approval(*[LOG] * 5000)
    assert lines[LISTED - 1 : LISTED + 1] == [LOG_LINE, "and 4,960 more: --json has all"]
    assert len(lines) == LISTED + 4
    lines = approval({**LOG, "difference": [("name", None, "log")]}, REVIEW, *[LOG] * 4998)
    assert (lines.count("  name"), lines.count(LOG_LINE)) == (1, LISTED)
    assert lines[-2] == "Differences in full: mcpd approve --diff 'git/prompt:review\\u202e'"


@cases("parts", "lines")
def test_a_difference_is_told_by_part_old_against_new(parts: list[Any], lines: list[str]) -> None:
    assert approval({**LOG, "difference": parts})[:-1] == [LOG_LINE, *lines, ""]


def test_a_difference_is_wrapped_and_has_a_screenful_of_lines_at_most() -> None:
    long = "word " * 100 + "\n+ argument place\n" + "x\n" * LONGEST
    lines = approval({**LOG, "difference": [("description", None, long)]})
    assert max(map(len, lines)) <= SCREEN.width
    assert lines[2].startswith("    + word word")
    assert lines[3].startswith("      word word"), "the column of signs is not a server's"
    assert "    + + argument place" in lines
    assert len(lines) < LONGEST + 10
    assert re.fullmatch(r"and \d+ more lines: --json has all", lines[LONGEST + 1])


def test_of_texts_too_long_to_align_the_beginning_of_what_differs_is_told() -> None:
    old = "\n".join(f"line {number % 200}" for number in range(ALIGNED))
    for new, shown in (
        (old.replace("line 7\n", "evil\n", 1), ["    - line 7", "    + evil", "      line 8"]),
        (f"{old}\nevil", ["    + evil", "      ..."]),
    ):
        lines = approval({**LOG, "difference": [("description", old, new)]})
        assert lines[2 : 3 + len(shown)] == ["      ...", *shown]


@cases("line", "names", "approves", "difference")
def test_a_command_line_shows_or_approves(
    control: Controls,
    capsys: Captured,
    line: str,
    names: list[str],
    approves: bool,
    difference: bool,
) -> None:
    answer = {"waiting": [LOG], "approved": [], "idle": []}
    daemon = control({"approve": answer})
    # What still waits after an approval has changed meanwhile.
    status = int(approves)
    assert implementation("approve").main(shlex.split(line)) == status
    assert capsys.readouterr().out.startswith(f"{MEANWHILE if approves else ''}{LOG_LINE}\n")
    assert implementation("approve").main([*shlex.split(line), "--json"]) == status
    assert json.loads(capsys.readouterr().out) == answer
    asked = {"names": names, "approve": approves, "shown": False, "difference": difference}
    assert daemon.asked == [("approve", asked)] * 2


def test_a_command_line_that_says_two_things_approves_nothing(control: Controls) -> None:
    daemon = control({})
    for line in ("--all git", "--all --diff", "--never"):
        with pytest.raises(SystemExit, match="2"):
            implementation("approve").main(shlex.split(line))
    assert daemon.asked == []


@cases("annotations", "said")
def test_annotations_are_what_a_server_says(annotations: object, said: str | None) -> None:
    shown = render_tool(answer(definition={"annotations": annotations}), SCREEN)
    assert (f"Its server says: {said}" in shown) if said else ("Its server says" not in shown)


@pytest.mark.parametrize(
    "example", [{}, {"a": "it's $HOME `x`"}, {"é": ["\u202e", "\n"]}, {"n": 1.5, "o": {"p": None}}]
)
def test_an_example_call_means_what_it_shows_and_moves_no_cursor(example: Any) -> None:
    program, command, name, *words = shlex.split(example_call(answer(example=example)))
    assert (program, command, name) == ("mcpd", "call", "git/log")
    assert json.loads(json.dumps(parse_arguments(words))) == example
    assert example_call(answer(tool="a b\x1b", example={"a": "\x1b\u202e"})).isprintable()


# --- prompts and resources as a person reads them ------------------------------------------------------------


WELL: dict[str, Any] = {"state": "ready", "reason": "", "known": True, "problem": "", "quarantined": {}}


def one(definition: dict[str, Any], **changed: Any) -> dict[str, Any]:
    known = {"server": "git", "offeredAs": "x", "enabled": True, "available": True, "definition": definition}
    return {**known, **changed}


def test_a_prompt_is_told_with_its_arguments() -> None:
    arguments = [{"name": "branch", "required": True}, {"name": "style\x1b"}, 7]
    described = {"name": "review", "description": "Reviews. At\nlength.", "arguments": arguments}
    review = one(described, name="review")
    plain = one({"title": "Plan it"}, name="plan", enabled=False)
    down = one({}, name="x", server="db", available=False)
    servers: dict[str, Any] = {
        "git": WELL, "db": {**WELL, "state": "backoff", "reason": "it died", "problem": "no list",
        "quarantined": {"y": "bad"}},
    }  # fmt: skip
    told: Any = {"prompts": [review, plain, down], "servers": servers}
    assert render_prompts(told, SCREEN).splitlines() == [
        "git/review  branch=…, style\\x1b=… [optional]",
        "            Reviews.",
        "git/plan    [disabled] Plan it",
        "db/x        [unavailable: db is down]",
        "db is in backoff: it died. What it listed before is shown.",
        "db: no list",
        "db/y cannot be used: bad",
    ]


def test_resources_and_templates_are_told_apart() -> None:
    page = one({"name": "Page", "mimeType": "text/html", "size": 2048, "description": "A page."}, uri="x:p")
    template = one({"name": "day"}, uri="x:{day}", enabled=False)
    told: Any = {"resources": [page], "templates": [template], "servers": {"git": WELL}}
    assert render_resources(told, SCREEN).splitlines() == [
        "resources",
        "git/x:p",
        "  Page, text/html, 2K",
        "  A page.",
        "",
        "templates",
        "git/x:{day}",
        "  [disabled]",
        "  day",
    ]


# --- what servers give back as texts: text as it is, anything else in a line ---------------------------------


@cases("item", "text")
def test_what_is_no_text_is_a_line(item: dict[str, Any], text: str) -> None:
    assert texts({"content": [item]}) == [text]
    assert texts({"content": [], "structuredContent": {"a": 1}}) == ['{\n  "a": 1\n}']
    assert texts({"content": []}) == []
