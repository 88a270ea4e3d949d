"""What operators are told has changed, and what was meant."""

from typing import Any

from daemon.catalog.entry import ServerEntry
from daemon.catalog.kinds import path_of
from daemon.catalog.snapshot import Catalog
from daemon.catalog.trust import HeldBecause, HeldDefinition
from daemon.facts import Approved, DefinitionsListed
from daemon.history.event_words import sentence
from daemon.history.journal import History
from daemon.model import Kind
from daemon.operators import news
from tests.fakes_upstream import Stage, definition_of, tool, tools_of
from tests.unit.catalog.samples import after, catalog_of, listed
from tests.unit.catalog.samples import tool as listed_tool


def entry(stage: Stage, server: str = "alpha") -> ServerEntry:
    return stage.catalog.value.servers[server]


def test_a_difference_has_what_came_went_and_changed() -> None:
    stage = Stage()
    before = entry(stage)
    stage.lists("alpha", tool("echo", description="another"), tool("new", description="quite another"))
    told = news.difference(before, entry(stage))
    assert (told["came"], told["went"], told["changed"]) == (["new"], ["add"], ["echo"])
    assert (told["tools"], told["state"]) == (2, "ready")


def test_an_event_says_what_of_changed_tools_differs_and_compares_only_some() -> None:
    stage = Stage()
    names = [f"tool{number}" for number in range(news.COMPARED + 5)]
    stage.lists("alpha", *(tool(name) for name in names))
    before = entry(stage)
    stage.lists("alpha", *(tool(name, description="another") for name in names))
    differ = news.changed(before, entry(stage)).details["toolsDiffer"]
    assert differ == {name: {"members": ["description"]} for name in names[: news.COMPARED]}


def differences(before: dict[str, object], after: dict[str, object]) -> dict[str, list[str]]:
    (had,), (has,) = tools_of("alpha", tool("current", **before)), tools_of("alpha", tool("current", **after))
    return news.differing(had, has)


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
    many = differences(schema({}), schema({f"a{number}": {} for number in range(news.MOST + 5)}))
    assert len(many["argumentsCame"]) == news.MOST


def held_after(*lists: list[str], text: str = "Another.") -> tuple[Catalog, Catalog]:
    """The catalogs before and after a server lists tools of these names, then others in another form."""
    first, then = lists
    trusting = catalog_of({"mcpServers": {"git": {"command": "x", "trust": "changes"}}})
    before = after(trusting, [Approved(), listed("git", *(listed_tool("git", name) for name in first))])
    changed_tools = (listed_tool("git", name, description=text) for name in then)
    return before, after(before, [listed("git", *changed_tools)])


def test_an_event_of_held_tools_is_told_as_it_was_kept() -> None:
    before, now = held_after(["log"], ["log", "diff"])
    found = news.newly_held(before.servers["git"], now.servers["git"], ())
    assert found is not None
    event, words = found
    assert words == ["git/log", "git/diff"]
    history = History(lambda: 1.0)
    history.note(event)
    assert history.newest.value is not None
    assert sentence(history.newest.value) == (
        "git: waits for approval (`mcpd approve`): log (it changed: description), diff (nobody approved it yet)"
    )
    assert news.newly_held(before.servers["git"], now.servers["git"], words) is None


def test_json_that_would_be_indentation_for_the_most_part_stays_on_one_line() -> None:
    """A definition of 250 kB could be 95 MB of text, and take most of a minute."""
    deep: Any = [0] * 1000
    for _ in range(300):
        deep = [deep]
    held = HeldDefinition(
        definition=listed_tool("git", "log", annotations={"title": "T"}, _meta={"deep": deep}),
        because=HeldBecause.NEW,
    )
    found = {name: now for name, _, now in news.members_differing(held)}
    assert (found["annotations"], len((found["_meta"] or "").splitlines())) == ('{\n  "title": "T"\n}', 1)


def test_an_event_of_many_held_tools_with_long_names_is_cut_and_told() -> None:
    names = [f"{number}{'n' * 120}" for number in range(news.NOTED + 5)]
    arguments = {"type": "object", "properties": {f"{'a' * 200}{number}": {} for number in range(news.MOST)}}
    before, _ = held_after(names, names)
    other = (listed_tool("git", name, inputSchema=arguments) for name in names)
    found = news.newly_held(before.servers["git"], after(before, [listed("git", *other)]).servers["git"], ())
    assert found is not None
    history = History(lambda: 1.0)
    history.note(found[0])
    assert history.newest.value is not None
    assert sentence(history.newest.value).endswith(f" and {news.NOTED + 5 - 10} more")


def test_what_waits_is_listed_by_server_as_operators_type_it() -> None:
    servers = {"git": {"command": "x", "trust": "none"}, "time": {"command": "y", "trust": "none"}}
    prompt = DefinitionsListed(
        server="git",
        kind=Kind.PROMPT,
        incarnation=1,
        definitions=(definition_of("git", Kind.PROMPT, {"name": "log"}),),
    )
    unread = after(catalog_of({"mcpServers": servers}), [listed("time", listed_tool("time", "now"))])
    assert news.waiting(*unread.servers.values()) == {}
    catalog = after(unread, [Approved(), listed("git", listed_tool("git", "log")), prompt])
    found = news.waiting(*catalog.servers.values())
    assert [*found] == ["git/prompt:log", "git/log", "time/now"]
    assert [path_of(each.definition) for each in found.values()] == [*found]


def test_a_held_definition_differs_by_member_and_by_argument() -> None:
    old = {
        "inputSchema": {"type": "object", "properties": {"city": {}, "days": {"type": "integer"}}},
        "title": "A",
    }
    new = {"inputSchema": {"properties": {"days": {"type": "string"}, "at": {}}}, "argument at": "to hide it"}
    catalog = after(
        catalog_of({"mcpServers": {"git": {"command": "x", "trust": "changes"}}}),
        [
            Approved(),
            listed("git", listed_tool("git", "log", description="Shows it.", **old)),
            listed("git", listed_tool("git", "log", description="Deletes it.", **new)),
        ],
    )
    held = news.waiting(*catalog.servers.values())["git/log"]
    found = news.members_differing(held)
    assert {(name, before, now) for name, before, now in found if name != "inputSchema"} == {
        ("description", "Shows it.", "Deletes it."),
        ("title", "A", None),
        ("argument at", None, "to hide it"),
        ("argument city", "{}", None),
        ("argument days", '{\n  "type": "integer"\n}', '{\n  "type": "string"\n}'),
        ("argument at", None, "{}"),
    }
