"""A schema of arguments that lacks its type is given it, and nothing else is touched."""

from __future__ import annotations

import json

import pytest

from daemon.catalog.schemas import completed, lacks_type


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (b"{}", b'{"type":"object"}'),
        (b"{ }", b'{"type":"object"}'),
        (
            b'{ "properties" : {"a":{"maximum":1.0}} }',
            b'{"type":"object","properties" : {"a":{"maximum":1.0}} }',
        ),
        (b'{"anyOf":[{"required":["a"]}]}', b'{"type":"object","anyOf":[{"required":["a"]}]}'),
    ],
)
def test_the_type_comes_first_and_the_rest_stays_byte_for_byte(schema: bytes, expected: bytes) -> None:
    raw = b'{"outputSchema":%b,"name":"t","inputSchema":%b,"x":[1.0, 2e1]}' % (schema, schema)
    made = completed(raw)
    assert made == b'{"outputSchema":%b,"name":"t","inputSchema":%b,"x":[1.0, 2e1]}' % (schema, expected)
    json.loads(made)


@pytest.mark.parametrize(
    ("schema", "lacks"),
    [({}, True), ({"properties": {"type": {}}}, True), ({"type": "object"}, False)],
)
def test_only_the_schemas_own_type_counts(schema: dict[str, object], lacks: bool) -> None:
    assert lacks_type({"inputSchema": schema}) is lacks


@pytest.mark.parametrize("schema", [None, [], True, {"type": "string"}, {"type": None}])
def test_what_is_no_schema_of_an_object_cannot_be_completed(schema: object) -> None:
    with pytest.raises(ValueError, match="its inputSchema"):
        lacks_type({"inputSchema": schema})


def test_nobody_makes_up_a_schema_where_there_is_none() -> None:
    with pytest.raises(ValueError, match="no inputSchema"):
        lacks_type({"name": "t"})
