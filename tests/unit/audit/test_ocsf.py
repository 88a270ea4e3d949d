"""Events of the audit are those that OCSF's published schema describes (`ocsf_6003.json`, an extract of it)."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.audit.audit_files import StoredRecord
from daemon.audit.inspection import event
from daemon.audit.record import AuditRecord, Decision
from tests.unit.audit.chaining import lines_of, record
from tests.unit.cases import cases

SCHEMA: dict[str, Any] = json.loads(Path(__file__).with_name("ocsf_6003.json").read_text())
NUMBERS = dict.fromkeys(("integer_t", "long_t", "timestamp_t"), int)
PYTHON: dict[str, Any] = {**NUMBERS, "float_t": (int, float), "boolean_t": bool, "json_t": dict}


def faults(value: Any, described: dict[str, Any], profiles: list[str], path: str = "") -> Iterator[str]:
    """What an object has that its description does not allow."""
    if described.get("open"):
        return
    attributes = described["attributes"]
    yield from (f"{path}{name} is unknown" for name in value.keys() - attributes.keys())
    known = {name: each for name, each in attributes.items() if name in value}
    yield from (
        f"{path}{name} is required"
        for name, each in attributes.items()
        if "required" in each and name not in value
    )
    if (least := described.get("at_least_one")) and not value.keys() & set(least):
        yield f"{path} has none of {least}"
    for name, each in known.items():
        if each.get("profile", *profiles[:1]) not in profiles:
            yield f"{path}{name} belongs to the profile {each['profile']}"
        for one in value[name] if each.get("array") else [value[name]]:
            yield from _faults_of(one, each, profiles, f"{path}{name}")


def _faults_of(value: Any, attribute: dict[str, Any], profiles: list[str], path: str) -> Iterator[str]:
    kind = attribute["type"]
    if kind in SCHEMA["objects"]:
        yield from faults(value, SCHEMA["objects"][kind], profiles, f"{path}.")
        return
    if kind not in SCHEMA["types"]:
        yield f"{path}: {kind} is not in the extract"
        return
    rules = SCHEMA["types"][kind]
    if not isinstance(value, PYTHON.get(rules.get("type", kind), PYTHON.get(kind, str))):
        yield f"{path} is no {kind}: {value!r}"
    elif "enum" in attribute and value not in attribute["enum"]:
        yield f"{path} is none of {attribute['enum']}: {value!r}"
    elif "regex" in rules and not re.search(rules["regex"], value):
        yield f"{path} does not fit {kind}: {value!r}"
    elif isinstance(value, str) and len(value) > rules.get("max_len", len(value)):
        yield f"{path} is longer than {rules['max_len']}"
    elif "range" in rules and not rules["range"][0] <= value <= rules["range"][1]:
        yield f"{path} is out of range: {value}"


def stored(each: AuditRecord) -> StoredRecord:
    """A record as it is read from its line."""
    return msgspec.json.decode(lines_of([each])[0], type=StoredRecord)


def found_in(told: dict[str, Any]) -> list[str]:
    """What an event has that class 6003 does not allow."""
    whole = json.loads(json.dumps(told))
    return [*faults(whole, SCHEMA["class"], whole["metadata"]["profiles"])]


WHOLE = record(
    2,
    session="#4",
    client="claude-code",
    principal="uid 1000",
    pid=77,
    schema_hash="ab" * 32,
    rule="allow: git/*",
    by="user of session #4",
    duration_ms=12.5,
    bytes=900,
    arguments_sha256="cd" * 32,
    arguments='{"a": 1}',
    trace_id="ef" * 16,
    details={"more": {"b": [1]}},
)


def test_a_whole_record_is_an_event_of_the_class() -> None:
    told = event(stored(WHOLE))
    assert found_in(told) == []
    assert (told["class_uid"], told["type_uid"], told["status_id"]) == (6003, 600399, 1)
    about = {"user": {"name": "uid 1000"}, "process": {"pid": 77}}
    assert told["actor"] == {"app_name": "claude-code", "session": {"uid": "#4"}, **about}
    assert told["api"] == {"operation": "tools/call", "service": {"name": "git"}}
    assert told["resources"] == [{"name": "git/git_log", "type": "MCP tool"}]
    assert (told["policy"], told["trace"]) == ({"name": "allow: git/*"}, {"uid": "ef" * 16})
    assert told["duration"] == 12
    assert datetime.fromtimestamp(told["time"] / 1000, WHOLE.at.tzinfo) == WHOLE.at
    assert told["unmapped"].keys() >= {
        "prev",
        "by",
        "argumentsSha256",
        "bytes",
        "details",
        "schemaHash",
        "tool",
    }


@pytest.mark.parametrize("decision", Decision)
def test_each_decision_is_an_event_of_the_class(decision: Decision) -> None:
    assert found_in(event(stored(record(2, decision, server="git")))) == []
    assert found_in(event(stored(record(2, decision)))) == []


@cases("decision", "members", "status", "action")
def test_a_status_tells_a_refusal(decision: str, members: dict[str, Any], status: int, action: int) -> None:
    made = event(stored(record(2, Decision(decision), **members)))
    assert (made["status_id"], made["action_id"]) == (status, action)


texts = st.text(st.characters(codec="utf-8"), max_size=40)


@given(st.sampled_from(Decision), texts, texts, texts, st.integers(0, 2**22), st.floats(0, 1e9), texts)
def test_any_record_is_an_event_of_the_class(
    decision: Decision, client: str, principal: str, method: str, pid: int, took: float, rule: str
) -> None:
    told = record(
        2, decision, client=client, principal=principal, method=method, pid=pid, duration_ms=took, rule=rule
    )
    assert found_in(event(stored(told))) == []


@cases("path", "value")
def test_the_schema_refuses_what_it_does_not_describe(path: str, value: object) -> None:
    assert found_in({**event(stored(WHOLE)), path: value})


def test_the_extract_names_its_version_and_license() -> None:
    assert (SCHEMA["version"], SCHEMA["license"][:10]) == ("1.8.0", "Apache-2.0")
    assert event(stored(WHOLE))["metadata"]["version"] == SCHEMA["version"]
