"""Prompts and resources as a person reads them."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.cli.definition_views import render_prompts, render_resources
from daemon.cli.terminal import Screen, first_sentence

SCREEN = Screen(width=100, colour=False)
WELL: dict[str, Any] = {"state": "ready", "reason": "", "known": True, "problem": "", "quarantined": {}}


def prompts_of(answer: Any, screen: Screen) -> str:
    return render_prompts(answer, screen)


def resources_of(answer: Any, screen: Screen) -> str:
    return render_resources(answer, screen)


def one(definition: dict[str, Any], **changed: Any) -> dict[str, Any]:
    known = {"server": "git", "offeredAs": "x", "enabled": True, "available": True, "definition": definition}
    return {**known, **changed}


def test_a_prompt_is_told_with_its_arguments() -> None:
    arguments = [{"name": "branch", "required": True}, {"name": "style\x1b"}, 7]
    review = one(
        {"name": "review", "description": "Reviews. At\nlength.", "arguments": arguments}, name="review"
    )
    plain = one({"title": "Plan it"}, name="plan", enabled=False)
    down = one({}, name="x", server="db", available=False)
    servers = {
        "git": WELL, "db": {**WELL, "state": "backoff", "reason": "it died", "problem": "no list",
        "quarantined": {"y": "bad"}},
    }  # fmt: skip
    assert prompts_of({"prompts": [review, plain, down], "servers": servers}, SCREEN).splitlines() == [
        "git/review  branch=…, style\\x1b=… [optional]",
        "            Reviews.",
        "git/plan    [disabled] Plan it",
        "db/x        [unavailable: db is down]",
        "db is backoff: it died. What it listed before is shown.",
        "db: no list",
        "db/y cannot be used: bad",
    ]


def test_resources_and_templates_are_told_apart() -> None:
    page = one({"name": "Page", "mimeType": "text/html", "size": 2048, "description": "A page."}, uri="x:p")
    template = one({"name": "day"}, uri="x:{day}", enabled=False)
    shown = resources_of({"resources": [page], "templates": [template], "servers": {"git": WELL}}, SCREEN)
    assert shown.splitlines() == [
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


def test_where_there_is_nothing_it_is_said() -> None:
    nothing: dict[str, Any] = {"prompts": [], "resources": [], "templates": [], "servers": {}}
    assert prompts_of(nothing, SCREEN) == "No server has listed a prompt."
    assert resources_of(nothing, SCREEN) == "No server has listed a resource."


@pytest.mark.parametrize(
    ("text", "first"), [("One. Two.", "One."), ("v1.2 is it! Yes", "v1.2 is it!"), ("a\n b", "a b"), (7, "")]
)
def test_the_first_sentence(text: object, first: str) -> None:
    assert first_sentence(text) == first


def test_a_server_that_never_listed_is_told_apart() -> None:
    servers = {"db": {**WELL, "state": "failed", "reason": "no such file", "known": False}}
    shown = prompts_of({"prompts": [], "servers": servers}, SCREEN)
    assert shown.splitlines()[1] == "db is failed: no such file. It has listed nothing yet."


def test_long_names_are_never_cut() -> None:
    uri = "file:///" + "a" * 300
    shown = resources_of(
        {"resources": [one({}, uri=uri)], "templates": [], "servers": {}}, Screen(40, colour=False)
    )
    assert shown.splitlines()[1] == f"git/{uri}"
