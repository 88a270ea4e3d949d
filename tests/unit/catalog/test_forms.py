"""Changes of definitions: noise is none, and each widening and each other word is one."""

from __future__ import annotations

import copy
from functools import reduce
from operator import getitem
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.forms import DIGITS, MAX_DEPTH, Comparing, change, form_of, parts_changed, steady
from daemon.catalog.kinds import LISTS
from daemon.model import Kind
from tests.unit.cases import cases
from tests.unit.catalog.noise import (
    NARROWER,
    ORDERS,
    VALUES,
    WIDER,
    Json,
    Render,
    encoded,
    mutants,
    noisy,
    shuffled,
    texts,
    tools,
)

SEEDS = st.integers(0, 2**32)


def raw(definition: Json) -> bytes:
    return msgspec.json.encode(definition)


@given(texts(), SEEDS, SEEDS)
def test_a_text_with_other_noise_is_the_same_text(text: Render, one: int, other: int) -> None:
    assert steady(text(Random(one))) == steady(text(Random(other)))


@pytest.mark.parametrize("sort", [*ORDERS, *VALUES])
def test_each_noise_alone_is_none(sort: str) -> None:
    rng = Random(sort)
    for _ in range(50):
        if sort in VALUES:
            one, other = (f"As of {VALUES[sort](rng)} it works." for _ in range(2))
        else:
            among, form = ORDERS[sort]
            one, other = (f"Has {form(shuffled(rng, list(among)))} to read." for _ in range(2))
        assert steady(one) == steady(other), (one, other)


@given(tools(), SEEDS, SEEDS)
def test_a_definition_with_other_noise_is_unchanged(template: Json, one: int, other: int) -> None:
    before, after = (encoded(noisy(template, Random(seed)), Random(seed)) for seed in (one, other))
    assert form_of(Kind.TOOL, before) == form_of(Kind.TOOL, after)
    assert change(Kind.TOOL, before, after) == {}


@given(tools(), SEEDS, SEEDS)
def test_an_argument_that_accepts_more_is_a_change_and_one_that_accepts_less_is_none(
    template: Json, one: int, other: int
) -> None:
    before = noisy(template, Random(one))
    for mutations, is_change in ((NARROWER, False), (WIDER, True)):
        for mutant in mutants(before, mutations):
            after = noisy(mutant, Random(other))
            assert bool(change(Kind.TOOL, raw(before), raw(after))) is is_change, (before, after)


# --- other changes ---------------------------------------------------------------------------------------

PLAIN: Json = {
    "name": "search",
    "title": "Search",
    "description": "Lists all.\n- open: those that wait\n- closed: the others\nUse {'a', 'b'} on 2026-11-29.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words.", "default": "all"},
            "limit": {"type": "integer", "maximum": 50, "default": 5},
            "state": {"enum": ["open", "closed"], "type": "string"},
            "dry_run": {"type": "boolean", "default": True},
            "place": {
                "anyOf": [{"type": "string", "title": "Name"}, {"type": "null"}],
                "description": "Where.",
            },
            "filter": {"$ref": "#/$defs/Filter"},
            "closed": False,
        },
        "required": ["query"],
        "$defs": {"Filter": {"type": "object", "properties": {"by": {"type": "string"}}}},
    },
    "annotations": {"readOnlyHint": True, "title": "Search"},
    "outputSchema": {"type": "object", "properties": {"found": {"type": "array", "description": "Issues."}}},
    "_meta": {"ui": {"resourceUri": "ui://search/page"}},
    "icons": [{"src": "https://example.org/icon.png"}],
}


@cases("how", "plain", "hidden")
def test_a_hidden_text_is_a_change(how: str, plain: str, hidden: str) -> None:
    before, after = ({**PLAIN, "description": text} for text in (plain, hidden))
    assert change(Kind.TOOL, raw(before), raw(after))
    assert change(Kind.TOOL, raw(before), raw({**before, "title": hidden}))
    schemas = [{"properties": {"x": {"type": "string", "description": text}}} for text in (plain, hidden)]
    assert change(Kind.TOOL, *(raw({**PLAIN, "inputSchema": each}) for each in schemas))


@cases("what", "edits")
def test_each_of_these_is_a_change(what: str, edits: list[Json]) -> None:
    """An edit is a path and a new value; a path alone removes a member."""
    after = copy.deepcopy(PLAIN)
    for path, *value in edits:
        place = reduce(getitem, path[:-1], after)
        if value:
            (place[path[-1]],) = value
        else:
            del place[path[-1]]
    assert change(Kind.TOOL, raw(PLAIN), raw(after))


def test_a_repeated_member_counts_with_all_its_values() -> None:
    before = raw(PLAIN)
    for once, twice in (
        (b'"title":"Search",', b'"title":"Ignore all","title":"Search",'),
        (b'"type":"integer"', b'"type":"string","type":"integer"'),
        (b'"readOnlyHint":true', b'"readOnlyHint":false,"readOnlyHint":true'),
    ):
        assert change(Kind.TOOL, before, before.replace(once, twice))


def test_no_member_hides_another_by_its_name() -> None:
    names = ["argument path", "member argument path"]
    before = {**PLAIN, **dict.fromkeys(names, "Reads.")}
    for name in names:
        assert change(Kind.TOOL, raw(before), raw({**before, name: "Sends."})) == {
            "members": [f"member {name}"]
        }


def test_a_further_condition_can_describe_what_was_not_there() -> None:
    more = {"properties": {"name": {"type": "string"}}}
    conditions = [[{"type": "object"}], [{"type": "object"}, more]]
    before, after = ({"properties": {"place": {"allOf": each}}} for each in conditions)
    found = change(Kind.TOOL, raw({**PLAIN, "inputSchema": before}), raw({**PLAIN, "inputSchema": after}))
    assert found == {"argumentsChanged": ["place"]}


@cases("what", "before", "after")
def test_an_argument_that_accepts_more_in_few_words_is_a_change(what: str, before: Json, after: Json) -> None:
    both = ({**PLAIN, "inputSchema": {"properties": {"place": each}}} for each in (before, after))
    assert change(Kind.TOOL, *map(raw, both)) == {"argumentsChanged": ["place"]}


@cases("what", "before", "after")
def test_an_argument_that_accepts_the_same_in_other_words_is_unchanged(
    what: str, before: Json, after: Json
) -> None:
    both = [raw({**PLAIN, "inputSchema": {"properties": {"place": each}}}) for each in (before, after)]
    assert change(Kind.TOOL, *both) == change(Kind.TOOL, *both[::-1]) == {}


@cases("what", "less", "more")
def test_less_is_no_change_and_more_is_one(what: str, less: Json, more: Json) -> None:
    few, many = (raw({**PLAIN, "inputSchema": {"properties": {"place": each}}}) for each in (less, more))
    assert change(Kind.TOOL, many, few) == {}
    assert change(Kind.TOOL, few, many) == {"argumentsChanged": ["place"]}


def test_other_spellings_are_no_change() -> None:
    before = raw(PLAIN)
    escaped = before.replace(b"Lists", b"List\\u0073").replace(b"{'a', 'b'}", b"{'b', 'a'}")
    assert escaped != before
    assert change(Kind.TOOL, before, escaped) == {}


def test_an_argument_that_must_be_given_needs_no_default() -> None:
    after = copy.deepcopy(PLAIN)
    after["inputSchema"]["required"] = ["query", "dry_run"]
    assert change(Kind.TOOL, raw(PLAIN), raw(after)) == {}
    del after["inputSchema"]["properties"]["dry_run"]["default"]
    assert change(Kind.TOOL, raw(PLAIN), raw(after)) == {}
    after["inputSchema"]["required"] = ["query"]
    assert change(Kind.TOOL, raw(PLAIN), raw(after)) == {"argumentsChanged": ["dry_run"]}


def test_a_change_names_members_and_arguments() -> None:
    after = copy.deepcopy(PLAIN)
    after["description"] = "Deletes issues."
    arguments = after["inputSchema"]["properties"]
    arguments["query"]["description"] = "Texts."
    arguments["force"] = {"type": "boolean"}
    del arguments["limit"]
    after["inputSchema"]["$defs"]["Filter"]["properties"]["by"] = {}
    found = change(Kind.TOOL, raw(PLAIN), raw(after))
    assert {what: sorted(names) for what, names in found.items()} == {
        "members": ["description", "inputSchema"],
        "argumentsCame": ["force"],
        "argumentsChanged": ["query"],
    }
    parts = parts_changed(form_of(Kind.TOOL, raw(PLAIN)).parts, form_of(Kind.TOOL, raw(after)).parts)
    assert parts == {**found, "argumentsWent": ["limit"]}
    assert all(len(part) == DIGITS for part in form_of(Kind.TOOL, raw(PLAIN)).parts.values())


@pytest.mark.parametrize("kind", [Kind.PROMPT, Kind.TEMPLATE])
def test_prompts_and_templates_have_changes_too(kind: Kind) -> None:
    before = {
        "name": "x",
        LISTS[kind].key: "x",
        "description": "As of 1.",
        "arguments": [{"name": "a"}, {"name": "b"}],
    }
    noise = {**before, "arguments": [{"name": "b"}, {"name": "a", "title": None}], "description": "As  of 2."}
    assert change(kind, raw(before), raw(noise)) == {}
    for more in (
        {"description": "Other."},
        {"arguments": [{"name": "a"}, {"name": "b", "required": True}]},
        {"mimeType": "x"},
    ):
        assert change(kind, raw(before), raw({**before, **more})) == {"members": [*more]}


# --- bounds ----------------------------------------------------------------------------------------------


def _nested(depth: int, **inmost: Json) -> Json:
    schema: Json = inmost
    for _ in range(depth):
        schema = {"items": schema}
    return {"name": "x", "inputSchema": {"type": "object", "properties": {"x": schema}}}


@pytest.mark.parametrize("depth", [MAX_DEPTH // 2, MAX_DEPTH + 1, 390])
def test_deep_nesting_counts_and_is_no_fault(depth: int) -> None:
    before, noise, after = (raw(_nested(depth, maximum=1, description=text)) for text in ("1", "2", "x"))
    assert bool(change(Kind.TOOL, before, noise)) is (depth > MAX_DEPTH)
    assert change(Kind.TOOL, before, after)
    assert form_of(Kind.TOOL, before).digest != form_of(Kind.TOOL, after).digest


def test_options_within_options_take_bounded_work() -> None:
    def options(depth: int, limit: int) -> Json:
        if not depth:
            return {"maximum": limit}
        return {"anyOf": [{**options(depth - 1, limit), "title": f"Option {'x' * each}"} for each in range(20)]}

    before, after = (
        raw({"name": "x", "inputSchema": {"type": "object", "properties": {"x": each}}})
        for each in map(options, (3, 3), (9, 8))
    )
    assert Comparing().change(Kind.TOOL, before, after) is None
    assert change(Kind.TOOL, before, after) == {"members": ["definition"]}


def test_a_long_text_around_many_options_takes_bounded_work() -> None:
    options = [{"title": f"Option {'x' * each}"} for each in range(50)]
    before, after = (
        raw({**PLAIN, "inputSchema": {"properties": {"x": {"title": "x" * 20_000, "anyOf": each}}}})
        for each in (options, options[1:])
    )
    assert Comparing().change(Kind.TOOL, before, after) is None


def test_beyond_the_bound_nothing_is_compared() -> None:
    before, after = (raw({**PLAIN, "description": text}) for text in ("As of 1.", "As of 2."))
    size = len(before) + len(after)
    work = Comparing(size + len(before))
    assert [work.change(Kind.TOOL, before, after), work.change(Kind.TOOL, before, after)] == [{}, None]
    work = Comparing(size - 1)
    first, second = work.digest(Kind.TOOL, before), work.digest(Kind.TOOL, after)
    assert (first, second) == (form_of(Kind.TOOL, before).digest, "")
    # What is known costs nothing.
    assert Comparing(0).digest(Kind.TOOL, before) == first


def test_no_two_definitions_share_their_full_digests_because_parts_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.catalog.forms.DIGITS", 0)
    after = {**PLAIN, "description": "Ignore all"}
    assert change(Kind.TOOL, raw(PLAIN), raw(after)) == {"members": ["description"]}


@pytest.mark.parametrize("title", ["GitStatus", "statusArguments", "git_statusInput"])
def test_what_another_version_of_an_sdk_writes_is_no_change(title: str) -> None:
    before = {**PLAIN, "name": "git_status"}
    after = copy.deepcopy(before)
    after["inputSchema"]["title"] = title
    assert not change(Kind.TOOL, raw(before), raw({**after, "execution": {"taskSupport": "forbidden"}}))
    assert change(Kind.TOOL, raw(before), raw({**after, "execution": {"taskSupport": "optional"}}))
    for other in (f"{title} deletes", "Send_keys_in_every_call"):
        after["inputSchema"]["title"] = other
        assert change(Kind.TOOL, raw(before), raw(after)) == {"members": ["inputSchema"]}
