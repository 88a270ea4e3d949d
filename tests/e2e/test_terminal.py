"""The whole protocol from a terminal: a person who is asked, told of progress, and reads what servers offer."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import whole_server
from tests.e2e.harness import Daemon, node_server, serving
from tests.terminals import INTERRUPT, Typing
from tests.unit.cases import rows_of
from tests.waiting import eventually

FORM = "everything/trigger-elicitation-request"
PAGE = (
    "call",
    "everything/trigger-url-elicitation",
    "url=https://login.example.org/start",
    "message=Log in",
    "elicitationId=e1",
)
SEND = "Send this to everything? [Y/n, decline] "


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    whole = {"command": sys.executable, "args": [whole_server.__file__, "whole", "modern"]}
    with serving({"mcpServers": {"everything": node_server("server-everything"), "whole": whole}}) as daemon:
        yield daemon


def test_a_form_is_filled_in(daemon: Daemon) -> None:
    answers = dict(rows_of(Path(__file__), "answers"))
    with Typing(daemon, "call", FORM) as person:
        assert "everything asks: Please provide inputs" in person.until("text: ")
        person.write("")
        assert "This value is required." in person.until("text: ")
        person.write(answers.pop("text: "))
        for prompt, line in answers.items():
            person.until(prompt)
            if prompt.startswith("an e-mail"):
                person.write("nobody")
                assert "Wanted is an e-mail address." in person.until(prompt)
            person.write(line)
        assert "Titled Single Select Enum: Wonder Woman" in person.until(SEND)
        person.write("")
        status, shown = person.end()
    assert status == 0
    sent = json.loads(shown.partition("Raw result: ")[2])
    assert sent == {"action": "accept", "content": dict(rows_of(Path(__file__), "sent"))}


@pytest.mark.parametrize(
    ("key", "action"), [("decline\n", "decline"), (INTERRUPT, "cancel"), ("\x04", "cancel")]
)
def test_a_form_need_not_be_filled_in(daemon: Daemon, key: str, action: str) -> None:
    with Typing(daemon, "call", FORM) as person:
        person.until("text: ")
        person.press(key)
        status, shown = person.end()
    assert status == 0
    assert f'"action": "{action}"' in shown


def test_missing_arguments_are_asked_for(daemon: Daemon) -> None:
    with Typing(daemon, "call", "everything/get-sum", "a=2") as person:
        person.until("a number: ")
        person.write("much")
        assert "Wanted is a number." in person.until("a number: ")
        person.write("3")
        status, shown = person.end()
    assert (status, "The sum of 2 and 3 is 5." in shown) == (0, True)
    with Typing(daemon, "call", "everything/get-sum", "--no-input") as person:
        status, shown = person.end()
    assert (status, "everything/get-sum needs a, b: write a=VALUE;" in shown) == (2, True)


@pytest.mark.parametrize("words", [(), ("--no-input",)])
def test_without_a_person_a_form_is_declined(daemon: Daemon, words: tuple[str, ...]) -> None:
    if words:
        with Typing(daemon, "call", FORM, *words) as person:
            shown = person.end()[1]
    else:
        shown = daemon.run("call", FORM)
    assert '"action": "decline"' in shown


def test_a_server_that_can_only_answer_is_given_what_it_needs(daemon: Daemon) -> None:
    assert json.loads(daemon.run("call", "whole/whole_ask")) == {"action": "decline"}
    with Typing(daemon, "call", "whole/whole_ask") as person:
        assert "whole asks: who?" in person.until("text: ")
        person.write("Ada")
        person.until("Send this to whole? [Y/n, decline] ")
        person.write("y")
        status, shown = person.end()
    assert (status, '"name": "Ada"' in shown) == (0, True)


def test_a_page_is_opened_by_nobody_but_the_person(daemon: Daemon) -> None:
    for line, action in (("m", "accept"), ("", "decline")):
        with Typing(daemon, *PAGE) as person:
            shown = person.until("N] ")
            assert "everything asks you to open a page: Log in\n  https://login.example.org/start\n" in shown
            assert "Host: login.example.org" in shown
            person.write(line)
            assert f'"action": "{action}"' in person.end()[1]


def test_a_call_that_needs_a_page_first_is_made_again(daemon: Daemon) -> None:
    with Typing(daemon, *PAGE, "errorPath=true") as person:
        person.until("N] ")
        person.write("m")
        person.until("the call is then repeated. ")
        person.write("")
        # Made again, this call asks in the usual way.
        assert "https://login.example.org/start" in person.until("N] ")
        person.write("m")
        status, shown = person.end()
    assert status == 0
    assert '"action": "accept"' in shown


def test_a_call_that_needs_a_page_first_fails_without_a_person(daemon: Daemon) -> None:
    words = [*PAGE[:-1], "elicitationId=e2", "errorPath=true"]
    result = json.loads(daemon.run(*words, "--json", check=1))
    assert result["structuredContent"]["error"]["upstream"]["code"] == -32042


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(daemon: Daemon) -> None:
    words = ("call", "everything/trigger-long-running-operation", "duration=0.4", "steps=4")
    with Typing(daemon, *words) as person:
        # On a busy machine a step may be shown together with the next one.
        assert re.search(r"\[#+-+\]  (25|50|75) %", person.until("100 %"))
        assert person.end()[1].endswith(
            "\r\x1b[KLong running operation completed. Duration: 0.4 seconds, Steps: 4.\n"
        )
    with Typing(daemon, *words, "-q") as person:
        assert person.end()[1] == "Long running operation completed. Duration: 0.4 seconds, Steps: 4.\n"


def test_tools_prompts_and_resources_are_told_and_used(daemon: Daemon) -> None:
    assert "file:///" in daemon.run("call", "everything/get-roots-list", "--root", ".")
    shown = daemon.run("tools", "everything/get-sum")
    assert daemon.run("tools", "everything__get-sum") == shown
    program, *words = shlex.split(shown.splitlines()[-1])
    assert program == "mcpd"
    assert daemon.run(*words).startswith("The sum of ")
    eventually(lambda: daemon.ask("prompts")["prompts"] and daemon.ask("resources")["templates"], daemon.said)
    assert "everything/args-prompt" in daemon.run("prompts")
    assert "city=…, state=… [optional]" in daemon.run("prompts", "everything")
    assert daemon.run("prompt", "everything/args-prompt", "city=Rome") == "user: What's weather in Rome?\n"
    assert "everything/demo://resource/static/document/features.md" in daemon.run("resources")
    assert daemon.run("read", "demo://resource/static/document/features.md").startswith("# Everything Server")
    with Typing(daemon, "read", "demo://resource/dynamic/blob/1") as person:
        status, shown = person.end()
    assert (status, "is binary" in shown) == (1, True)
    for words in (["tools", "everything/get-smu"], ["prompt", "everything/args"], ["read", "demo://elsewhere"]):
        daemon.run(*words, check=66)
        daemon.run(*words, "--control", str(daemon.directory / "none"), check=3)
