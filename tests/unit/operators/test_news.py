"""What operators are told has changed, and what was meant."""

from daemon.catalog.entry import ServerEntry
from daemon.operators.news import COMPARED, MOST, changed, difference, differing
from tests.fakes_upstream import Stage, tool, tools_of


def entry(stage: Stage, server: str = "alpha") -> ServerEntry:
    return stage.catalog.value.servers[server]


def test_a_difference_has_what_came_went_and_changed() -> None:
    stage = Stage()
    before = entry(stage)
    stage.lists("alpha", tool("echo", description="another"), tool("new", description="quite another"))
    told = difference(before, entry(stage))
    assert (told["came"], told["went"], told["changed"]) == (["new"], ["add"], ["echo"])
    assert (told["tools"], told["state"]) == (2, "ready")


def test_an_event_says_what_of_changed_tools_differs_and_compares_only_some() -> None:
    stage = Stage()
    names = [f"tool{number}" for number in range(COMPARED + 5)]
    stage.lists("alpha", *(tool(name) for name in names))
    before = entry(stage)
    stage.lists("alpha", *(tool(name, description="another") for name in names))
    differ = changed(before, entry(stage)).details["toolsDiffer"]
    assert differ == {name: {"members": ["description"]} for name in names[:COMPARED]}


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
