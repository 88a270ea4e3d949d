"""The hash of a tool: the same for the same meaning, another for another."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound
from msgspec import UNSET, Raw

from daemon.catalog.definitions import (
    canonical,
    compact,
    completed,
    encoded,
    fingerprint,
    hashes,
    lacks_type,
    marks_in,
    tools_digest,
)
from daemon.catalog.extensions import MAX_INTRODUCTION, SHORT_TEXT, introduction_in, read_introduction
from daemon.catalog.kinds import CHANGED, LISTS, switch_of, switched_by
from daemon.config.config_model import Server
from daemon.facts import Switched
from daemon.model import Kind
from tests.unit.cases import cases, rows_of
from tests.unit.catalog.samples import after, catalog_of, servers
from tests.unit.config.reading import config_of, server_of
from tests.unit.json_values import json_values

PARTS = {
    "name": b'"read_file"',
    "title": b'"Read"',
    "description": b'"Reads a file."',
    "inputSchema": b'{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}',
    "outputSchema": b'{"type":"object"}',
    "annotations": b'{"readOnlyHint":true}',
    "icons": b'[{"src":"https://example.org/i.png"}]',
    "_meta": b'{"anthropic/alwaysLoad":true}',
    "execution": b'{"taskSupport":"optional"}',
    "x-of-tomorrow": b"1",
}


def schema_hash(parts: Mapping[str, bytes]) -> str:
    """The hash of a tool as it was sent."""
    return hashes({name: msgspec.json.decode(raw) for name, raw in parts.items()})[0]


def content_hash(parts: Mapping[str, bytes]) -> str:
    """The hash of its contents."""
    return hashes({name: msgspec.json.decode(raw) for name, raw in parts.items()})[1]


def test_the_hash_is_sha256_of_the_sorted_compact_json() -> None:
    expected = hashlib.sha256(b'{"inputSchema":{"a":[1,2],"b":"\xc3\xa9"},"name":"t"}').hexdigest()
    assert schema_hash({"name": b'"t"', "inputSchema": b' {"b": "\\u00e9", "a": [1, 2]} '}) == expected


@pytest.mark.parametrize("member", [*PARTS, 'another \u00e9"'])
def test_every_member_counts_and_all_but_the_name_are_contents(member: str) -> None:
    changed = {**PARTS, member: b'{"type":"object","x":1}'}
    removed = {name: part for name, part in PARTS.items() if name != member}
    hashes = {schema_hash(PARTS), schema_hash(changed), schema_hash(removed)}
    assert len(hashes) == (3 if member in PARTS else 2)
    assert (content_hash(changed) == content_hash(PARTS)) is (member == "name")
    assert content_hash(PARTS) != schema_hash(PARTS)


def test_order_white_space_and_escapes_do_not_count_but_the_order_of_a_list_does() -> None:
    other = dict(reversed(PARTS.items()))
    other["name"] = b'"\\u0072ead_file"'
    other["inputSchema"] = (
        b'{ "required": ["path"],\n "properties": {"path": {"type": "string"}}, "type": "object"}'
    )
    assert schema_hash(other) == schema_hash(PARTS)
    one, two = ({"inputSchema": b'{"required":["%b","%b"]}' % pair} for pair in ((b"a", b"b"), (b"b", b"a")))
    assert schema_hash(one) != schema_hash(two)


# --- a tool's contents, and all of a server's tools ----------------------------------------------------------


def test_the_digest_of_tools_does_not_depend_on_their_order() -> None:
    one, two, three = (str(number) * 64 for number in range(3))
    assert tools_digest([one, two, three]) == tools_digest(iter([three, one, two]))
    assert (
        len({tools_digest(each) for each in ([], [one], [two], [one, two], [one, one], [one, two, three])}) == 6
    )


# --- which server it is --------------------------------------------------------------------------------------

COMMAND: dict[str, Any] = {
    "command": "serena",
    "args": ["--a", "b"],
    "env": {"A": "1", "B": "2"},
    "cwd": "/srv",
}
REMOTE: dict[str, Any] = {"type": "http", "url": "https://example.org/mcp", "headers": {"A": "1", "B": "2"}}

DECISIVE, INDECISIVE = (rows_of(Path(__file__), name) for name in ("decisive", "indecisive"))
"""Keys of an entry, each with a change; of decisive ones also the entry that has the key."""
READ_INTO_OTHERS = {
    *("name", "substituted", "credentials", "identity", "instance"),
    *("env_file", "confined", "faults", "scripts"),
}
"""What is no key of an entry, or whose content is read into another one."""
OF_LOGINS = {"oauth", "auth"}
"""How to log in, which decides nothing about who answers."""


def test_every_key_of_a_server_is_known_to_decide_or_not() -> None:
    keys = {field.name for field in attrs.fields(Server)}
    named = {row[0] for row in (*DECISIVE, *INDECISIVE)}
    assert keys == named | READ_INTO_OTHERS | OF_LOGINS


def test_what_decides_which_server_answers_and_nothing_else_makes_another_fingerprint() -> None:
    entries = {"command": COMMAND, "remote": REMOTE}
    for key, which, change in DECISIVE:
        entry = entries[which]
        assert fingerprint(server_of({**entry, **change})) != fingerprint(server_of(entry)), key
    for key, change in INDECISIVE:
        assert fingerprint(server_of({**COMMAND, **change})) == fingerprint(server_of(COMMAND)), key


def test_neither_the_name_of_a_server_nor_the_order_of_its_variables_and_headers_decides() -> None:
    config = config_of({"mcpServers": {"one": COMMAND, "two": COMMAND}})
    assert len({fingerprint(server) for server in config.mcp_servers.values()}) == 1
    for key, entry in (("env", COMMAND), ("headers", REMOTE)):
        turned = {**entry, key: dict(reversed(entry[key].items()))}
        assert fingerprint(server_of(turned)) == fingerprint(server_of(entry))


def test_a_secret_counts_by_its_value_and_cannot_be_read_from_the_fingerprint() -> None:
    entry = {"command": "x", "env": {"TOKEN": "${TOKEN}"}}
    one, two = (fingerprint(server_of(entry, {"TOKEN": value})) for value in ("s3cret", "0ther"))
    assert one != two
    assert "s3cret" not in one
    assert len(one) == 64


# --- JSON ----------------------------------------------------------------------------------------------------

JSON = json_values(leaves=20)


@given(JSON | st.dictionaries(st.text(), JSON, min_size=2, max_size=6))
def test_canonical_json_means_the_same_whatever_the_order_of_members(value: object) -> None:
    written = canonical(value)
    assert msgspec.json.decode(written) == value
    assert canonical(msgspec.json.decode(written)) == written
    if isinstance(value, dict):
        assert canonical(dict(reversed(value.items()))) == written


def shortened(schema: Any) -> Any:
    return msgspec.json.decode(compact(msgspec.json.encode(schema)))


@cases("schema", "short")
def test_what_says_nothing_is_left_out(schema: object, short: object) -> None:
    assert shortened(schema) == short


@cases("schema")
def test_what_means_something_stays(schema: object) -> None:
    assert shortened(schema) == schema


def test_a_schema_that_is_nested_too_deeply_comes_back_as_it_is() -> None:
    bomb = b'{"items":' * 5000 + b"{}" + b"}" * 5000
    assert compact(bomb) == bomb


KEYS = st.sampled_from(["a", "b", "title"])
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "null", "object", "array"]),
            "title": st.sampled_from(["", "t"]),
            "default": st.none() | st.just({}),
            "required": st.lists(KEYS, unique=True),
        },
    ),
    lambda schemas: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(KEYS, schemas, max_size=3),
            "anyOf": st.lists(schemas, min_size=1, max_size=2),
            "items": schemas,
            "not": schemas,
            "additionalProperties": schemas | st.booleans(),
        },
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x"]),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(KEYS, values, max_size=3),
    max_leaves=6,
)


@given(SCHEMAS, st.lists(VALUES, min_size=3, max_size=3))
def test_a_short_schema_accepts_and_refuses_the_same_values(schema: Any, values: list[Any]) -> None:
    long, short = (jsonschema.Draft202012Validator(each) for each in (schema, shortened(schema)))
    for value in values:
        assert long.is_valid(value) is short.is_valid(value)


@cases("schema", "expected", raw={"schema", "expected"})
def test_the_type_comes_first_and_the_rest_stays_byte_for_byte(schema: bytes, expected: bytes) -> None:
    raw = b'{"outputSchema":%b,"name":"t","inputSchema":%b,"x":[1.0, 2e1]}' % (schema, schema)
    made = completed(raw)
    assert made == b'{"outputSchema":%b,"name":"t","inputSchema":%b,"x":[1.0, 2e1]}' % (schema, expected)
    json.loads(made)


@pytest.mark.parametrize("schema", [None, [], True, {"type": "string"}, {"type": None}])
def test_what_is_no_schema_of_an_object_cannot_be_completed(schema: object) -> None:
    with pytest.raises(ValueError, match="its inputSchema"):
        lacks_type({"inputSchema": schema})


# --- kinds of definitions ------------------------------------------------------------------------------------


NAMES = st.text(min_size=1) | st.builds(
    "".join, st.lists(st.sampled_from(["tool:", "prompt:", "x", ":"]), min_size=1)
)


@given(st.sampled_from(Kind), NAMES)
def test_every_switch_reads_back_as_what_it_names(kind: Kind, name: str) -> None:
    assert switched_by(switch_of(kind, name)) == (kind, name)


def test_of_what_is_switched_off_the_tools_are_known_by_their_own_names() -> None:
    off = [("a", ""), ("a", "log"), ("a", "tool:prompt:log"), ("b", "prompt:log"), ("b", "resource:mem://1")]
    catalog = after(catalog_of({"mcpServers": servers("a", "b")}), [Switched(off=frozenset(off))])
    assert catalog.switched_tools == {("a", "log"), ("a", "prompt:log")}
    assert {kind for kinds in CHANGED.values() for kind in kinds} == LISTS.keys() == set(Kind)


# --- what a server says of itself ----------------------------------------------------------------------------


def test_what_a_server_writes_is_kept_byte_for_byte() -> None:
    info = b'{"name" : "g\\u00e9", "version":1.50, "icons":[]}'
    said = b'{"capabilities": {"tools":{}}, "serverInfo": %b, "instructions": " x\\n ", "other": 1}' % info
    kept = read_introduction(introduction_in(said, {"name": "gé"}))
    assert kept is not None
    assert kept.info == Raw(info)
    assert kept.capabilities == {"tools": {}}
    assert kept.instructions == " x\n "


@pytest.mark.parametrize(
    "said", [b"", b"[]", b"{", b'{"serverInfo":7,"capabilities":[],"instructions":{}}', b"\xff"]
)
def test_what_is_no_introduction_says_nothing(said: bytes) -> None:
    kept = read_introduction(introduction_in(said, 7))
    assert kept is None or (kept.info, kept.capabilities, kept.instructions) == (UNSET, {}, None)


def test_one_that_is_too_long_keeps_its_names_and_the_beginning_of_its_texts() -> None:
    info = {"name": "n" * (SHORT_TEXT + 1), "version": "1", "icons": [{"src": "i" * MAX_INTRODUCTION}]}
    said = msgspec.json.encode({"serverInfo": info, "capabilities": {"tools": {}}, "instructions": "x" * 9999})
    raw = introduction_in(said, info)
    assert len(raw) < MAX_INTRODUCTION
    kept = read_introduction(raw)
    assert kept is not None
    assert kept.info is not UNSET
    assert msgspec.json.decode(kept.info) == {"name": "n" * SHORT_TEXT, "version": "1"}
    assert kept.capabilities == {"tools": {}}
    assert kept.instructions == "x" * SHORT_TEXT


@given(st.binary(max_size=200), st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_nothing_that_a_server_says_breaks_it(said: bytes, info: object) -> None:
    read_introduction(said)
    read_introduction(introduction_in(said, info))


# --- marked arguments ----------------------------------------------------------------------------------------


def mark(suffix: object = "X", kind: object = "string") -> dict[str, object]:
    return {"type": kind, "x-mcp-header": suffix}


MARKED = {"properties": {"deep": {"properties": {"x": mark("Depth", "integer")}}, "place": mark("Place")}}


@pytest.mark.parametrize("schema", [None, {}, {"properties": 5}, {"properties": {"a": 5}}, MARKED], ids=str)
def test_marks_are_found_where_the_sdk_finds_them(schema: Any) -> None:
    assert dict(marks_in(schema)) == inbound.x_mcp_header_map(schema)


@pytest.mark.parametrize("suffix", ["", "no token", 5, None])
def test_a_mark_that_cannot_be_a_header_is_none(suffix: object) -> None:
    assert not dict(marks_in({"properties": {"a": mark(suffix), "b": {"items": mark("Deep")}}}))


@pytest.mark.parametrize(
    "value", ["", "a", "a b", " a", "a ", "tö", "a\n", "x\ty", "=?base64?x?=", "=?base64?x"]
)
def test_a_value_survives_a_header(value: str) -> None:
    assert encoded(value) == inbound.encode_header_value(value)
    assert inbound.decode_header_value(encoded(value)) == value
