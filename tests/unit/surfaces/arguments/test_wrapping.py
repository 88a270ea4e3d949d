"""A wrapper call is taken apart byte for byte, and its shortcut does what the surface would do."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.errors import CallError, InvalidArguments
from daemon.surfaces.surface import AwaitListing, Forward, View
from daemon.surfaces.table import SURFACES
from daemon.surfaces.validators import MAX_REMEMBERED
from daemon.surfaces.wrapped import Wrapper
from tests.unit.cases import cases
from tests.unit.catalog.samples import catalog_of, servers, tool, up
from tests.unit.json_values import json_values
from tests.unit.surfaces.samples import view_of

EXAMPLE = '{"tool_name": "NAME", "arguments": {}}'
WRAPPER = Wrapper("arguments", ("tool_name",), EXAMPLE)

READ = tool(
    "fs",
    "read",
    annotations={"readOnlyHint": True},
    inputSchema={
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}, "of": {"type": "object"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
LENIENT = tool("fs", "lent", annotations={"readOnlyHint": True}, inputSchema={"properties": {"path": {}}})
CATALOG = up(fs=[READ, LENIENT, "any"])

WRAPPERS: Mapping[str, tuple[str, str, dict[str, str]]] = {
    "call-category-tool": ("category", "args", {"category": "fs", "name": "read"}),
    "call-read-only-tool": ("category", "args", {"category": "fs", "name": "read"}),
    "call_tool": ("browse", "arguments", {"tool_name": "read"}),
    "call_read_only_tool": ("search", "arguments", {"tool_name": "read"}),
}
"""The surface of each meta-tool that calls others, its slot for arguments, and how it names a tool."""


def plain(meta_tool: str, arguments: str = '{"path":"a"}') -> bytes:
    """A call as nearly all are written."""
    _surface, slot, named = WRAPPERS[meta_tool]
    return f'{compact(named)[:-1]},"{slot}":{arguments}}}'.encode()


def compact(value: object) -> str:
    """As clients write JSON."""
    return json.dumps(value, separators=(",", ":"))


def decided(view: View, meta_tool: str, sent: bytes) -> Forward | str:
    """What the surface decides, or the code of its refusal."""
    try:
        action = SURFACES[WRAPPERS[meta_tool][0]].call(view, meta_tool, sent, patient=False)
    except CallError as error:
        return error.code
    assert isinstance(action, Forward)
    return action


def warm(meta_tool: str) -> View:
    """A view in which a plain call was sent."""
    view, sent = view_of(CATALOG), plain(meta_tool)
    action = decided(view, meta_tool, sent)
    assert isinstance(action, Forward)
    view.remember(meta_tool, sent, action)
    return view


def found(view: View, meta_tool: str, sent: bytes) -> tuple[Forward | None, bytes | Raw]:
    """What is sent without asking the surface."""
    return view.wrapped[meta_tool].find(sent)


def shape(forward: Forward, arguments: bytes | Raw) -> tuple[object, ...]:
    """All that is sent, counted or asked because of a decision."""
    return (
        forward.server,
        forward.method,
        forward.name,
        forward.head,
        bytes(arguments),
        forward.label,
        forward.repair,
        forward.convert,
        forward.loading,
        forward.ask,
    )


@cases("sent", "arguments", "beside", raw={"sent", "arguments"})
def test_a_wrapper_is_taken_apart_byte_for_byte(
    sent: bytes, arguments: bytes | None, beside: dict[str, str]
) -> None:
    wrapped = WRAPPER.unwrap(sent)
    assert wrapped.said == {"tool_name": "x"}
    assert wrapped.name == "x"
    assert (None if wrapped.arguments is None else bytes(wrapped.arguments)) == arguments
    assert {key: bytes(value).decode() for key, value in wrapped.beside.items()} == beside


@cases("sent")
def test_a_wrapper_that_does_not_say_which_tool_is_refused_with_an_example(sent: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        WRAPPER.unwrap(sent.encode("latin-1"))
    assert caught.value.message.endswith(f"Call it like this: {EXAMPLE}")
    assert "tool_name" in caught.value.message


@pytest.mark.parametrize("meta_tool", WRAPPERS)
@cases("arguments")
def test_a_call_as_nearly_all_are_written_is_sent_without_being_judged_again(
    meta_tool: str, arguments: str
) -> None:
    known, sent = found(warm(meta_tool), meta_tool, plain(meta_tool, arguments))
    assert known is not None
    # The arguments of the first call, which may be a secret, are not kept.
    assert (known.name, known.arguments, bytes(sent)) == ("read", b"{}", arguments.encode())
    call = plain(meta_tool, arguments).replace(b'"read"', b'"any"')
    assert found(warm(meta_tool), meta_tool, call) == (None, call)


@pytest.mark.parametrize("meta_tool", WRAPPERS)
@pytest.mark.parametrize(
    "arguments",
    [
        "{}",
        "null",
        "[]",
        '"{\\"path\\":\\"a\\"}"',
        '{"path":1}',
        '{"path":"a","more":1}',
        '{"args":{"path":"a"}}',
        '{"path":"a"},"path":"b"',
        '{"path":"a","limit":1e400}',
        '{"path":"a","of":' + '{"a":' * 40 + "1" + "}" * 41,
        '{"path":"' + "a" * 300_000 + '"}',
        '{"path":"a"',
    ],
)
def test_a_call_that_takes_a_closer_look_is_left_to_its_surface(meta_tool: str, arguments: str) -> None:
    call = plain(meta_tool, arguments)
    assert found(warm(meta_tool), meta_tool, call) == (None, call)


VALUES = json_values(keys=st.sampled_from(["path", "limit", "of", "args", "input", "x"]))
JUNK = st.sampled_from(
    [
        b"",
        b" ",
        b'"',
        b"\\",
        b",",
        b"{",
        b"}",
        b"[]",
        b"null",
        b'"path":"z",',
        b'"name":"any",',
        b"\\u0061",
        b"1e999",
    ]
) | st.binary(max_size=2)


@st.composite
def calls(draw: st.DrawFn, meta_tool: str) -> bytes:
    """Calls of every kind: members in any order, some twice, some unknown, and pieces put in or cut out."""
    _surface, slot, named = WRAPPERS[meta_tool]
    fitting: dict[str, Any] = {"path": draw(st.text(max_size=5))}
    arguments = draw(st.one_of(st.just(fitting), VALUES, VALUES.map(json.dumps)))
    members = [*named.items(), (slot, arguments)]
    members += draw(st.lists(st.sampled_from([*members, ("x", 1), ("args", {}), (slot, fitting)]), max_size=2))
    members = draw(st.just(members) | st.permutations(members))
    escaped = draw(st.booleans())
    space = draw(st.sampled_from(["", " ", "\n\t"]))
    written = (f"{json.dumps(key)}:{space}{json.dumps(value, ensure_ascii=escaped)}" for key, value in members)
    line = ("{" + f",{space}".join(written) + "}").encode("utf-8", "surrogatepass")
    if draw(st.booleans()):
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(JUNK) + line[at + draw(st.integers(0, 3)) :]
    return line


@pytest.mark.parametrize("meta_tool", WRAPPERS)
@given(data=st.data())
def test_whatever_is_sent_without_being_judged_is_what_the_surface_would_send(
    meta_tool: str, data: st.DataObject
) -> None:
    sent = data.draw(calls(meta_tool))
    known, arguments = found(warm(meta_tool), meta_tool, sent)
    if known is None:
        assert arguments is sent
        return
    judged = decided(view_of(CATALOG), meta_tool, sent)
    assert isinstance(judged, Forward)
    assert shape(known, arguments) == shape(judged, judged.arguments)


@pytest.mark.parametrize("count", [1, MAX_REMEMBERED, MAX_REMEMBERED + 1])
@pytest.mark.parametrize("meta_tool", WRAPPERS)
def test_a_view_remembers_so_many_calls_and_no_more(meta_tool: str, count: int) -> None:
    view = warm(meta_tool)
    action = decided(view, meta_tool, plain(meta_tool))
    assert isinstance(action, Forward)
    for number in range(count - 1):
        view.remember(meta_tool, plain(meta_tool).replace(b'"read"', b'"%d"' % number), action)
    assert len(view.wrapped[meta_tool]) == min(count, MAX_REMEMBERED)


def test_what_holds_for_one_call_only_is_not_remembered() -> None:
    """A category takes a tool on trust whose server has not listed; a call that has time waits for the list."""
    category = {"description": "d", "server": "fs"}
    view = view_of(catalog_of({"mcpServers": servers("fs"), "categories": {"all": category}}))
    sent = b'{"category":"all","name":"read","args":{}}'
    action = decided(view, "call-category-tool", sent)
    assert isinstance(action, Forward)
    view.remember("call-category-tool", sent, action)
    assert not view.wrapped
    waited = SURFACES["category"].call(view, "call-category-tool", sent, patient=True)
    assert isinstance(waited, AwaitListing)
