"""The hash of a tool: the same for the same meaning, another for another."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.digests import HASHED, canonical, schema_hash

PARTS = {
    "name": b'"read_file"',
    "title": b'"Read"',
    "description": b'"Reads a file."',
    "inputSchema": b'{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}',
    "outputSchema": b'{"type":"object"}',
    "annotations": b'{"readOnlyHint":true}',
}


def test_the_hash_is_sha256_of_the_sorted_compact_json() -> None:
    expected = hashlib.sha256(b'{"inputSchema":{"a":[1,2],"b":"\xc3\xa9"},"name":"t"}').hexdigest()
    assert schema_hash({"name": b'"t"', "inputSchema": b' {"b": "\\u00e9", "a": [1, 2]} '}) == expected


@pytest.mark.parametrize("member", HASHED)
def test_every_member_that_a_caller_depends_on_counts(member: str) -> None:
    changed = {**PARTS, member: b'{"type":"object","x":1}'}
    removed = {name: part for name, part in PARTS.items() if name != member}
    assert len({schema_hash(PARTS), schema_hash(changed), schema_hash(removed)}) == 3


@pytest.mark.parametrize("member", ["_meta", "icons", "execution"])
def test_members_that_no_caller_depends_on_do_not_count(member: str) -> None:
    assert schema_hash({**PARTS, member: b"{}"}) == schema_hash(PARTS)


def test_order_white_space_and_escapes_do_not_count() -> None:
    other = dict(reversed(PARTS.items()))
    other["name"] = b'"\\u0072ead_file"'
    other["inputSchema"] = (
        b'{ "required": ["path"],\n "properties": {"path": {"type": "string"}}, "type": "object"}'
    )
    assert schema_hash(other) == schema_hash(PARTS)


def test_the_order_of_a_list_does_count() -> None:
    one, other = ({"inputSchema": b'{"required":["%b","%b"]}' % pair} for pair in ((b"a", b"b"), (b"b", b"a")))
    assert schema_hash(one) != schema_hash(other)


@pytest.mark.parametrize("number", [b"18446744073709551616", b"-1" + b"0" * 40, b"1.7976931348623157e308"])
def test_numbers_that_real_schemas_hold_can_be_hashed(number: bytes) -> None:
    assert len(schema_hash({"inputSchema": b'{"maximum":%b}' % number})) == 64


def test_what_is_no_json_cannot_be_hashed() -> None:
    with pytest.raises(msgspec.DecodeError):
        schema_hash({"name": b"nope"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_canonical_json_means_the_same_and_is_a_fixed_point(value: object) -> None:
    written = canonical(value)
    assert msgspec.json.decode(written) == value
    assert canonical(msgspec.json.decode(written)) == written


@given(st.dictionaries(st.text(), JSON, min_size=2, max_size=6))
def test_canonical_json_does_not_depend_on_the_order_of_members(value: dict[str, object]) -> None:
    assert canonical(value) == canonical(dict(reversed(value.items())))
