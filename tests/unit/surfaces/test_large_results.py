"""What a client gets of a result that is too long, and the pieces that it reads of the rest."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon import errors
from daemon.surfaces import additions
from daemon.surfaces.additions import FRAME, READ_RESULT, cut_result, read_from, result_in, start_of
from daemon.surfaces.surface import ReadResult
from daemon.surfaces.table import SURFACES, ClientInfo, for_profile, most_bytes
from tests.unit.cases import cases
from tests.unit.config.reading import config_of
from tests.unit.surfaces.samples import act, refused, view_of
from tests.unit.surfaces.test_read_only import UP

ID = "0123456789abcdef" * 2
Json = dict[str, Any]

# Of one to four bytes each, with what JSON escapes.
TEXTS = st.text(st.sampled_from('aZ \n"\\\x00\x1fé߿€\uffff\U0001f600\U0010ffff'), max_size=3000)


def encoded(**members: Any) -> bytes:
    return json.dumps(members, ensure_ascii=False).encode()


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def cut(room: int = 8000, **members: Any) -> Json:
    """What a client gets of a result."""
    found: Json = json.loads(cut_result(encoded(**members), room, ID))
    return found


def asked(**members: Any) -> ReadResult:
    return ReadResult(id=ID, **{"room": FRAME + 400, **members})


def piece(whole: bytes, **members: Any) -> tuple[str, int, int]:
    """A piece, and where it begins and ends."""
    found, note = json.loads(read_from(whole, asked(**members)))["content"]
    words = note["text"].split()
    assert words[:2] == ["[mcpd:", "bytes"]
    return found["text"], int(words[2]), int(words[4])


# --- pieces --------------------------------------------------------------------------------------------------


@given(said=TEXTS, room=st.integers(2, 4000), end=st.booleans())
def test_a_start_is_of_whole_characters_within_its_room_and_as_long_as_it_can_be(
    said: str, room: int, *, end: bool
) -> None:
    raw = said.encode()
    found = start_of(raw, room, end=end)
    assert said.endswith(found) if end else said.startswith(found)
    assert len(json.dumps(found, ensure_ascii=False).encode()) <= max(room, 2)
    if len(json.dumps(said).encode()) <= room:
        assert found == said


@given(said=TEXTS.filter(bool), limits=st.lists(st.integers(4, 900), min_size=1))
def test_pieces_of_any_length_are_the_whole(said: str, limits: list[int]) -> None:
    whole, found, offset, number = encoded(content=[text(said)]), "", 0, 0
    size = len(said.encode())
    while offset < size:
        more, begin, end = piece(whole, offset=offset, limit=limits[number % len(limits)])
        assert begin == offset
        assert end == begin + len(more.encode())
        found, offset, number = found + more, end, number + 1
    assert found == said


@given(said=TEXTS.filter(bool), data=st.data())
def test_an_offset_within_a_character_goes_on_with_the_next_and_no_answer_is_too_long(
    said: str, data: st.DataObject
) -> None:
    whole, raw = encoded(content=[text(said)]), said.encode()
    offset = data.draw(st.integers(0, len(raw) - 1))
    try:
        found, begin, end = piece(whole, offset=offset)
    except errors.InvalidArguments:
        assert not raw[offset:].decode(errors="ignore")
        return
    assert 0 <= begin - offset < 4
    assert raw[begin:end].decode() == found
    assert len(read_from(whole, asked(offset=offset))) <= asked().room


def test_an_offset_behind_the_end_is_refused() -> None:
    with pytest.raises(errors.InvalidArguments, match="has 3 bytes"):
        read_from(encoded(content=[text("abc")]), asked(offset=3))


def test_as_a_resource_it_is_what_the_server_sent_byte_by_byte() -> None:
    whole = b'{ "content" : [{"type":"text","text":"\\u00e9"}],\n "x":1.0}'
    (contents,) = json.loads(read_from(whole, ReadResult(id=ID)))["contents"]
    assert contents["text"].encode() == whole
    assert contents["uri"] == f"mcpd://results/{ID}"


# --- both ends -----------------------------------------------------------------------------------------------


@given(said=st.lists(TEXTS, max_size=3), room=st.integers(2000, 9000), data=st.text(max_size=500))
def test_both_ends_fit_into_their_room_and_the_rest_can_be_read(said: list[str], room: int, data: str) -> None:
    content = [*map(text, said), {"type": "image", "data": "QUJD" * 3000, "mimeType": "image/png"}]
    whole = encoded(content=content, structuredContent={"a": data}, isError=False)
    shown = cut_result(whole, room, ID)
    assert len(shown) <= room
    *texts, link = json.loads(shown)["content"]
    assert link["uri"] == f"mcpd://results/{ID}"
    joined = "\n".join(filter(None, said)) or json.dumps({"a": data}, ensure_ascii=False)
    if len(texts) == 2:
        assert texts[0]["text"] == joined
    else:
        start, note, end = (each["text"] for each in texts)
        assert joined.startswith(start)
        assert joined.endswith(end)
        assert f'"offset": {len(start.encode())}' in note
        missing = len(joined.encode()) - len(start.encode()) - len(end.encode())
        assert f"{missing:,} of {len(joined.encode()):,} bytes of the text" in note


def test_of_a_million_blocks_the_first_are_looked_at_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(additions, "MAX_BLOCKS", 2)
    shown, note, _link = cut(content=[text("one"), {"type": "odd"}, text("three"), text("four")])["content"]
    assert shown["text"] == "one"
    assert "2 further blocks" in note["text"]
    assert "three" not in note["text"]


def test_what_is_left_out_is_named_and_the_other_members_stay() -> None:
    file = {"uri": "file:///a.bin", "mimeType": "x/y", "blob": "QUJD" * 2000}
    content = [
        text("all of it"),
        {"type": "image", "data": "QUJD" * 2000, "mimeType": "image/png"},
        {"type": "audio", "data": "QUJD", "mimeType": "audio/wav"},
        {"type": "resource", "resource": file},
        {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "and a file"}},
    ]
    found = cut(content=content, structuredContent={"n": 1}, isError=True, _meta={"m": [1]}, other="o")
    assert (found["isError"], found["_meta"], found["other"]) == (True, {"m": [1]}, "o")
    assert "structuredContent" not in found
    shown, note, link = found["content"]
    assert shown["text"] == "all of it\nand a file"
    for words in (
        "image image/png",
        "audio audio/wav",
        "resource x/y file:///a.bin",
        "structuredContent (8 bytes)",
    ):
        assert words in note["text"]
    assert "bytes of the text" not in note["text"]
    assert link["type"] == "resource_link"


def test_a_name_of_any_length_does_not_fill_the_answer() -> None:
    file = {"uri": "file:///" + "a" * 90_000, "blob": "QUJD"}
    assert len(json.dumps(cut(2000, content=[{"type": "resource", "resource": file}] * 500))) <= 2000


def test_structured_content_alone_is_the_text() -> None:
    found = cut(2000, content=[], structuredContent={"items": [*range(2000)]})
    assert found["content"][0]["text"].startswith('{"items": [0, 1, 2')


@pytest.mark.parametrize(
    "whole", [b"[]", b'{"content":1}', b'{"content":[1]}', b'{"content":[{"text":1}]}', b"\xff"]
)
def test_what_is_like_no_result_is_not_cut(whole: bytes) -> None:
    with pytest.raises((ValueError, UnicodeError)):
        cut_result(whole, 2000, ID)


# --- who gets it ---------------------------------------------------------------------------------------------


@cases("uri", "found")
def test_the_uri_of_a_result_is_recognised(uri: str, found: str) -> None:
    assert result_in(uri) == found


def test_the_tool_decides_what_is_read() -> None:
    config = config_of({"profiles": {"p": {"results": {"maxTokens": 500}}}})
    surface = for_profile(SURFACES["full"], config.profiles["p"])
    assert READ_RESULT.name in surface.meta_tools
    view = view_of(UP)
    wanted = {"offset": 5, "limit": 900, "grep": "a", "jq": ".b"}
    action = act(surface, view, READ_RESULT.name, {"id": f"mcpd://results/{ID}", **wanted})
    assert action == ReadResult(id=ID, room=view.profile.answer_tokens * 4, **wanted)  # type: ignore[arg-type]
    assert not callable(READ_RESULT.properties)
    assert READ_RESULT.properties.keys() == {"id", *wanted}
    for wrong in ({}, {"id": ID, "offset": -1}, {"id": ID, "limit": 3}, {"id": ID, "more": 1}):
        refused(surface, view, READ_RESULT.name, wrong, errors.InvalidArguments)
    reads = config_of({"profiles": {"p": {"readResource": True}}}).profiles["p"]
    read = act(for_profile(SURFACES["full"], reads), view, "read_resource", {"uri": f"mcpd://results/{ID}"})
    assert isinstance(read, ReadResult)
    assert read.id == ID


@pytest.mark.parametrize(
    ("name", "tokens", "most"),
    [("cursor", 500, 2000), ("claude-code", 500, None), ("cursor", None, None), ("", 700, 2800)],
)
def test_clients_that_write_large_results_to_files_get_them_whole(
    name: str, tokens: int | None, most: int | None
) -> None:
    profile = config_of({"profiles": {"p": {"results": {"maxTokens": tokens}}}}).profiles["p"]
    found = most_bytes(ClientInfo(name=name, version="1"), profile)
    assert found == most if most else found > 2**60
