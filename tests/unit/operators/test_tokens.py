"""What an operator is told of tokens, and that the daemon has read them again by then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.operators.base import NoParams
from daemon.operators.tokens import tokens
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import FACTS, operator_context

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext

VALUE = "0123456789abcdef-of-ci"


class FakeAccess:
    """Tokens that have been read as often as it says."""

    def __init__(self) -> None:
        self.learned = 0
        self.used = {"ci": 5.0}
        self.problem = ""

    async def learn(self) -> None:
        """Note it."""
        self.learned += 1


def context(listen: Any = None, **changed: Any) -> OperatorContext:
    config = config_of({"listen": listen or {}, "profiles": {"reader": {}}})
    return operator_context(Stage(config), facts=attrs.evolve(FACTS, state="/var/lib/mcpd"), **changed)


async def test_a_daemon_without_http_says_where_they_would_be() -> None:
    assert await tokens(context(), NoParams()) == {
        "state": "/var/lib/mcpd",
        "http": None,
        "configured": None,
        "profiles": ["default", "reader"],
        "used": {},
        "problem": "",
    }


async def test_they_are_read_again_before_the_answer() -> None:
    access = FakeAccess()
    access.problem = "it is damaged"
    answer = await tokens(context({"http": {}}, access=access), NoParams())
    assert access.learned == 1
    assert (answer["http"], answer["used"], answer["problem"]) == (
        "127.0.0.1:7337",
        {"ci": 5.0},
        "it is damaged",
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, None),
        (VALUE, [{"name": None, "profiles": None, "console": None}]),
        (
            [{"name": "ci", "value": VALUE, "profiles": ["reader"]}],
            [{"name": "ci", "profiles": ("reader",), "console": None}],
        ),
        ([], []),
    ],
)
async def test_configured_tokens_are_named_and_their_values_are_not(given: Any, told: Any) -> None:
    answer = await tokens(context({"http": {"tokens": given}}), NoParams())
    assert answer["configured"] == told
    assert VALUE not in json.dumps(answer)
