"""What a person is asked and told, and the answer that MCP has for what they type."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.cli.asking.elicitation import answer, missing
from tests.unit.cli.asking.people import Scripted

Json = dict[str, Any]

FORM: Json = {
    "message": "Tell me\x1b[2J", "requestedSchema": {"type": "object",
    "properties": {"name": {"type": "string", "title": "Your name", "description": "In full", "minLength": 2},
    "age": {"type": "integer", "default": 42}, "pet": {"type": "string", "oneOf": [{"const": "c",
    "title": "Cat"}, {"const": "d", "title": "Dog"}]}}, "required": ["name"]},
}  # fmt: skip


def asked(params: Json, *lines: str) -> tuple[Json, Scripted]:
    person = Scripted(*lines)
    return answer("alpha", params, person, lambda _url: False), person


def test_a_form_is_asked_question_by_question_and_shown_before_it_is_sent() -> None:
    result, person = asked(FORM, "", "x", "Ada", "", "dog", "n", "Eve", "7", "", "y")
    assert result == {"action": "accept", "content": {"name": "Eve", "age": 7}}
    assert "*alpha* asks: Tell me\\x1b[2J" in person.all
    assert "*Your name*: In full" in person.all
    assert "This one is needed." in person.all
    assert "Wanted is text, at least 2 characters." in person.all
    assert "  a whole number [42]: " in person.all
    assert "  1) Cat\n  2) Dog" in person.all
    assert "  Your name: Ada\n  age: 42\n  pet: Dog\nSend this to alpha? [Y/n, decline] " in person.all


@pytest.mark.parametrize("lines", [("decline",), ("Ada", " decline "), ("Ada", "", "", "decline")])
def test_decline_is_an_answer_to_every_question(lines: tuple[str, ...]) -> None:
    assert asked(FORM, *lines)[0] == {"action": "decline"}


@pytest.mark.parametrize("lines", [(), ("Ada",), ("Ada", "", "")])
def test_breaking_off_cancels(lines: tuple[str, ...]) -> None:
    assert asked(FORM, *lines)[0] == {"action": "cancel"}


def test_the_word_itself_can_be_sent() -> None:
    result, _ = asked(FORM, r"\decline", "", "", "y")
    assert result["content"]["name"] == "decline"


def test_a_form_without_fields_is_a_question_of_yes_or_no() -> None:
    params = {"message": "Delete all?", "requestedSchema": {"type": "object", "properties": {}}}
    assert asked(params, "y")[0] == {"action": "accept", "content": {}}
    assert asked(params, "what?", "")[0] == {"action": "decline"}


def test_what_cannot_be_asked_is_declined_and_said_so() -> None:
    result, person = asked({"message": "?", "requestedSchema": {"properties": {"a": {"type": "object"}}}})
    assert result == {"action": "decline"}
    assert (
        "Declined: this form cannot be asked here, because its field 'a' is of the type 'object'" in person.all
    )


@pytest.mark.parametrize("name", ["password", "api_key", "Access Token", "dbPasswd", "client_secret"])
@pytest.mark.parametrize("place", ["name", "title"])
def test_a_field_that_looks_like_a_secret_is_marked(name: str, place: str) -> None:
    field = {"type": "string", "title": name if place == "title" else "x"}
    properties = {name if place == "name" else "x": field}
    _, person = asked({"message": "?", "requestedSchema": {"properties": properties}})
    assert "MCP forbids servers to ask for one like this" in person.all


def test_an_ordinary_field_is_not_marked() -> None:
    assert "MCP forbids" not in asked(FORM)[1].all


URL = "https://user@login.example.org:8443/start?x=1"


def page(url: object, *lines: str, browser: bool = True) -> tuple[Json, Scripted, list[str]]:
    person, opened = Scripted(*lines), []

    def browse(url: str) -> bool:
        opened.append(url)
        return browser

    params = {"mode": "url", "message": "Log in", "elicitationId": "1", "url": url}
    return answer("alpha", params, person, browse), person, opened


def test_a_page_is_shown_in_full_and_opened_only_after_a_yes() -> None:
    result, person, opened = page(URL, "y")
    assert (result, opened) == ({"action": "accept"}, [URL])
    assert "https://user@*login.example.org:8443*/start?x=1" in person.all
    assert "Host: *login.example.org*" in person.all
    assert "What stands before the @" in person.all
    assert page(URL, "")[::2] == ({"action": "decline"}, [])
    assert page(URL, "hm", "no")[::2] == ({"action": "decline"}, [])
    assert page(URL)[::2] == ({"action": "cancel"}, [])


def test_a_page_can_be_opened_by_oneself() -> None:
    assert page(URL, "m")[::2] == ({"action": "accept"}, [])
    result, person, _ = page(URL, "y", browser=False)
    assert result == {"action": "accept"}
    assert "open it yourself" in person.all


@pytest.mark.parametrize(
    ("url", "warning"),
    [("https://xn--80ak6aa92e.com/", "letters beyond ASCII"), ("http://example.org/", "not encrypted")],
)
def test_what_is_odd_about_a_page_is_said(url: str, warning: str) -> None:
    assert warning in page(url)[1].all


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/cb", "http://localhost/x", "https://example.org/"])
def test_what_is_usual_about_a_page_is_not(url: str) -> None:
    assert "! " not in page(url)[1].all


@pytest.mark.parametrize(
    "url",
    [
        None, 7, "", "javascript:alert(1)", "file:///etc/passwd", "https://", "https://a b/", "https://a\\@b/",
        "https://exämple.org/", "https://a\x1b[2J/", "--help", "https://[::1/", "ftp://a/", "https://a:0/",
    ],
)  # fmt: skip
def test_what_is_no_page_is_declined_unasked(url: object) -> None:
    result, person, opened = page(url, "y")
    assert (result, opened, person.left) == ({"action": "decline"}, [], ["y"])
    assert "\x1b" not in person.all
    assert "is no address of a page on the web" in person.all


def test_only_what_a_tool_requires_and_lacks_is_asked_for() -> None:
    members = {"zone": {"type": "string"}, "days": {"type": "integer"}, "deep": {"type": "object"}}
    schema = {"properties": {**members, "more": {"type": "string"}}, "required": ["zone", "days", "deep"]}
    person = Scripted("UTC", "many", "3")
    # What no form can ask is named by the check of the call.
    assert missing(schema, {}, person) == {"zone": "UTC", "days": 3}
    assert missing(schema, {"zone": "UTC", "days": 3}, Scripted()) == {}
