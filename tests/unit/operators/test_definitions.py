"""What operators are shown of prompts, resources and templates: where they come from, and whether they work."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from daemon.errors import UnknownServer
from daemon.facts import Switched
from daemon.model import Kind
from daemon.operators.definition_commands import listed, problems, servers_of
from daemon.states import ServerState
from tests.fakes_upstream import Stage
from tests.unit.operators.offering import offer
from tests.unit.operators.stage import operator_context


def told(stage: Stage, kind: Kind) -> list[dict[str, Any]]:
    context = operator_context(stage)
    rows: list[dict[str, Any]] = json.loads(msgspec.json.encode(listed(context, context.catalog.servers, kind)))
    return rows


def test_each_says_what_clients_call_it_and_whether_it_works() -> None:
    stage = Stage()
    offer(stage, "alpha", Kind.PROMPT, "review", title="Review")
    offer(stage, "beta", Kind.PROMPT, "review", "plan")
    stage.becomes("beta", ServerState.BACKOFF)
    stage.learn(Switched(off=frozenset({("alpha", "prompt:review")})))
    review, other, plan = told(stage, Kind.PROMPT)
    assert review == {
        "server": "alpha",
        "name": "review",
        "offeredAs": "review",
        "enabled": False,
        "available": False,
        "definition": {"name": "review", "title": "Review"},
    }
    assert (other["offeredAs"], other["enabled"], other["available"]) == ("beta__review", True, False)
    assert plan["offeredAs"] == "plan"


def test_resources_go_by_their_uri() -> None:
    stage = Stage()
    offer(stage, "alpha", Kind.RESOURCE, "file:///a")
    offer(stage, "alpha", Kind.TEMPLATE, "file:///{x}")
    assert [each["uri"] for kind in (Kind.RESOURCE, Kind.TEMPLATE) for each in told(stage, kind)] == [
        "file:///a",
        "file:///{x}",
    ]
    assert told(stage, Kind.RESOURCE)[0]["available"] is True


def test_only_servers_of_which_there_is_something_to_tell_are_named() -> None:
    stage = Stage()
    context = operator_context(stage)
    assert problems(context, context.catalog.servers, (Kind.PROMPT,)) == {}
    offer(stage, "alpha", Kind.PROMPT, "x", quarantined={"y": "it has no name"})
    offer(stage, "beta", Kind.RESOURCE, problem="it took too long")
    found = problems(context, context.catalog.servers, (Kind.PROMPT, Kind.RESOURCE))
    assert {name: (each["problem"], each["quarantined"]) for name, each in found.items()} == {
        "alpha": ("", {"y": "it has no name"}),
        "beta": ("it took too long", {}),
    }
    assert list(problems(context, context.catalog.servers, (Kind.PROMPT,))) == ["alpha"]
    stage.becomes("beta", ServerState.FAILED)
    assert problems(context, context.catalog.servers, (Kind.PROMPT,))["beta"]["known"] is False


def test_one_server_or_all() -> None:
    context = operator_context(Stage())
    assert list(servers_of(context, None)) == ["alpha", "beta"]
    assert list(servers_of(context, "beta")) == ["beta"]
    with pytest.raises(UnknownServer, match=r"Did you mean alpha\?"):
        servers_of(context, "alfa")
