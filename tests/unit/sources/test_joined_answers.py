"""Texts from outside and answers become one text, in which no reference is that none of them has."""

from __future__ import annotations

from typing import Any

from daemon.config.config_model import EntryOrigin
from daemon.sources.offers import Input, ServerOffer, as_text, filled
from tests.unit.cases import cases


def offer(*inputs: Input, **entry: Any) -> ServerOffer:
    return ServerOffer(name="s", entry=entry, origin=EntryOrigin(name="s", version="1"), inputs=inputs)


@cases("text", "default", "joined")
def test_a_reference_does_not_arise_where_texts_meet(text: str, default: str, joined: str) -> None:
    made = filled(offer(Input(name="x", default=default), args=[text], env={"A": text}), {})
    assert (made["args"], made["env"]) == ([joined], {"A": joined})


def test_a_reference_that_the_user_gives_is_one() -> None:
    made = filled(offer(Input(name="x"), headers={"Authorization": "Bearer ${input:x}"}), {"x": "${S__TOKEN}"})
    assert made["headers"] == {"Authorization": "Bearer ${S__TOKEN}"}


def test_an_input_of_several_values_becomes_several_arguments() -> None:
    each = offer(Input(name="x", multiple=True), args=["a", "${input:x}", "--in=${input:x}"])
    assert filled(each, {"x": "/b:/c"})["args"] == ["a", "/b", "/c", "--in=/b:/c"]
    assert filled(each, {"x": "${HOME:-/h}/b:~/c:${run:pass a:b}"})["args"][1:4] == [
        "${HOME:-/h}/b",
        "~/c",
        "${run:pass a:b}",
    ]
    assert filled(each, {})["args"] == ["a"]
    option = offer(Input(name="x", multiple=True), args=[["--in", "${input:x}"], ["--no-${input:x}"], []])
    assert filled(option, {"x": "/b:/c"})["args"] == ["--in", "/b", "--in", "/c", "--no-/b:/c"]
    assert "args" not in filled(option, {})


@cases("text", "escaped")
def test_a_reference_within_another_is_text_as_well(text: str, escaped: str) -> None:
    assert as_text(text) == escaped
