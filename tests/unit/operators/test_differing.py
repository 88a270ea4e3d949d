"""What differs between two definitions of a tool."""

from __future__ import annotations

from daemon.operators.news import MOST, differing
from tests.fakes_upstream import tool, tools_of


def differences(before: dict[str, object], after: dict[str, object]) -> dict[str, list[str]]:
    (had,), (has,) = tools_of("alpha", tool("current", **before)), tools_of("alpha", tool("current", **after))
    return differing(had, has)


def schema(properties: object, *required: str) -> dict[str, object]:
    return {"inputSchema": {"type": "object", "properties": properties, "required": [*required]}}


def test_members_that_came_went_or_changed_are_named() -> None:
    assert differences({"title": "A"}, {"description": "Another.", "annotations": {"readOnlyHint": True}}) == {
        "members": ["description", "title", "annotations"]
    }


def test_arguments_that_came_went_changed_or_became_required_are_named() -> None:
    before = schema({"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {}}, "city")
    after = schema({"place": {}, "days": {"type": "number"}, "unit": {}}, "place", "unit")
    assert differences(before, after) == {
        "members": ["inputSchema"],
        "argumentsCame": ["place"],
        "argumentsWent": ["city"],
        "argumentsChanged": ["days"],
        "argumentsRequired": ["place", "unit"],
    }


def test_another_order_is_no_difference_and_there_are_not_too_many() -> None:
    assert differences(schema({"a": {}, "b": {}}), schema({"b": {}, "a": {}})) == {}
    many = differences(schema({}), schema({f"a{number}": {} for number in range(MOST + 5)}))
    assert len(many["argumentsCame"]) == MOST
