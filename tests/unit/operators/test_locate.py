"""Which server `mcpd read URI` asks."""

from __future__ import annotations

import pytest

from daemon.errors import ResourceDisabled
from daemon.facts import Switched
from daemon.model import Kind
from daemon.operators.base import Refused
from daemon.operators.definition_commands import LocateParams, locate
from tests.fakes_upstream import Stage
from tests.unit.operators.offering import offer
from tests.unit.operators.stage import operator_context


async def place(stage: Stage, uri: str) -> dict[str, object]:
    return await locate(operator_context(stage), LocateParams(uri))


async def test_a_uri_is_read_where_a_client_would_read_it() -> None:
    stage = Stage()
    offer(stage, "alpha", Kind.RESOURCE, "file:///a")
    offer(stage, "beta", Kind.RESOURCE, "file:///a", "file:///b")
    offer(stage, "beta", Kind.TEMPLATE, "notes://{day}")
    assert await place(stage, "file:///a") == {"server": "alpha", "uri": "file:///a"}
    assert await place(stage, "file:///b") == {"server": "beta", "uri": "file:///b"}
    assert await place(stage, "notes://monday") == {"server": "beta", "uri": "notes://monday"}
    assert await place(stage, "mcpd://beta/file%3A%2F%2F%2Fa") == {"server": "beta", "uri": "file:///a"}


async def test_profiles_hide_nothing_from_operators() -> None:
    stage = Stage(profiles={"default": {"resources": False}})
    offer(stage, "alpha", Kind.RESOURCE, "file:///a")
    assert await place(stage, "file:///a") == {"server": "alpha", "uri": "file:///a"}


async def test_what_may_be_anybodys_is_refused_with_the_closest() -> None:
    stage = Stage()
    offer(stage, "alpha", Kind.RESOURCE, "file:///notes")
    offer(stage, "beta", Kind.RESOURCE, "file:///b")
    with pytest.raises(Refused, match=r"Did you mean file:///notes .*`mcpd read SERVER/URI`"):
        await place(stage, "file:///nots")


async def test_what_is_switched_off_is_said_to_be_and_how_it_is_switched_on() -> None:
    stage = Stage()
    offer(stage, "alpha", Kind.RESOURCE, "file:///a", "file:///b")
    offer(stage, "beta", Kind.RESOURCE, "file:///c")
    stage.learn(Switched(off=frozenset({("alpha", "resource:file:///a")})))
    with pytest.raises(ResourceDisabled, match="`mcpd enable alpha/resource:file:///a`"):
        await place(stage, "file:///a")
    with pytest.raises(Refused) as refused:
        await place(stage, "file:///nots")
    assert "file:///a" not in str(refused.value)
