"""Prompts, resources and templates in `mcpd status --json`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from daemon.config.redaction import Redactors
from daemon.facts import DefinitionsListed, Switched
from daemon.model import Kind
from daemon.operators.status_commands import MAX_NAMED, status_with
from daemon.states import ServerState
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import operator_context
from tests.unit.state.samples import definition


def stage_with(*names: str, kind: Kind = Kind.PROMPT, description: str = "", **more: Any) -> Stage:
    """Servers of which alpha lists these."""
    stage = Stage()
    listed = tuple(definition(kind, name, "alpha", description=description) for name in names)
    stage.learn(DefinitionsListed(server="alpha", incarnation=1, kind=kind, definitions=listed, **more))
    return stage


def told(stage: Stage) -> dict[str, Any]:
    """The answer, as programs read it."""
    answer: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status_with(operator_context(stage), {})))
    return answer


def test_numbers_are_told_of_each_server_and_of_all() -> None:
    stage = stage_with("review", "fix")
    listed = (definition(Kind.RESOURCE, "mem://1", "beta"),)
    stage.learn(DefinitionsListed(server="beta", incarnation=1, kind=Kind.RESOURCE, definitions=listed))
    answer = told(stage)
    for who, numbers in (
        (answer["servers"]["alpha"], (2, 0, 0)),
        (answer["servers"]["beta"], (0, 1, 0)),
        (answer["daemon"], (2, 1, 0)),
    ):
        assert tuple(who[kind] for kind in ("prompts", "resources", "templates")) == numbers


def test_what_a_server_that_is_down_has_is_named_as_unavailable() -> None:
    stage = stage_with("review", "fix")
    assert told(stage)["servers"]["alpha"]["unavailablePrompts"] == []
    stage.learn(Switched(off=frozenset({("alpha", "prompt:fix")})))
    stage.becomes("alpha", ServerState.BACKOFF, reason="exited")
    alpha = told(stage)["servers"]["alpha"]
    assert alpha["unavailablePrompts"] == ["review"]
    assert (alpha["unavailableResources"], alpha["unavailableTemplates"]) == ([], [])
    assert alpha["lists"]["prompts"]["switchedOff"] == 1
    stage.learn(Switched(off=frozenset({("alpha", "")})))
    assert told(stage)["servers"]["alpha"]["unavailablePrompts"] == [], "it is off, and nobody misses it"


def test_of_ten_thousand_resources_some_are_named_and_the_rest_is_counted() -> None:
    stage = stage_with(*(f"mem://{number}" for number in range(10_000)), kind=Kind.RESOURCE)
    stage.becomes("alpha", ServerState.BACKOFF)
    alpha = told(stage)["servers"]["alpha"]
    assert len(alpha["unavailableResources"]) == MAX_NAMED
    assert alpha["unavailableResourcesLeft"] == 10_000 - MAX_NAMED


def test_faults_of_a_list_are_told_as_those_of_tools() -> None:
    stage = stage_with("review", description="turned\u202earound", quarantined={"bad": "no name"})
    listed = told(stage)["servers"]["alpha"]["lists"]["prompts"]
    assert (listed["known"], listed["recalled"], listed["listingError"]) == (True, False, "")
    assert listed["quarantined"] == {"bad": "no name"}
    assert "U+202E" in listed["hidden"]["review"].upper()
    stage.learn(
        DefinitionsListed(
            server="alpha", incarnation=1, kind=Kind.PROMPT, definitions=(), problem="timed out after 5 s"
        )
    )
    alpha = told(stage)["servers"]["alpha"]
    assert alpha["lists"]["prompts"]["listingError"] == "timed out after 5 s"
    assert alpha["prompts"] >= 1, "what is known stays"


def test_a_server_that_has_listed_nothing_has_the_same_keys() -> None:
    answer = told(stage_with("review"))["servers"]
    assert answer["alpha"].keys() == answer["beta"].keys()
    assert (
        answer["alpha"]["lists"].keys()
        == answer["beta"]["lists"].keys()
        == {"prompts", "resources", "templates"}
    )
    assert answer["beta"]["lists"]["prompts"]["known"] is False


@pytest.mark.parametrize(
    "more", [{"quarantined": {"canary-1234567": "canary-1234567"}}, {"problem": "canary-1234567"}]
)
def test_no_secret_is_told(more: dict[str, Any]) -> None:
    context = operator_context(stage_with("review", **more), redact=Redactors(["canary-1234567"]))
    assert b"canary" not in msgspec.json.encode(status_with(context, {}))
