"""`mcpd prompt`: arguments that are texts, and messages as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation
from daemon.cli.command import UsageError
from daemon.cli.use import messages, parse_texts
from tests.unit.cli.daemons import asked_for

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("prompt").main

RESULT: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": {"type": "text", "text": "Look:"}},
        {"role": "user", "content": {"type": "image", "mimeType": "image/png", "data": "QUJD"}},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [([], {}), (["n=3", "q=a=b", "e="], {"n": "3", "q": "a=b", "e": ""}), (['{"n": "3"}'], {"n": "3"})],
)
def test_arguments_are_texts(words: list[str], arguments: dict[str, str]) -> None:
    assert parse_texts(words) == arguments


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], "'x' is neither KEY=VALUE"),
        (["a=1", "a=2"], "'a' is given twice"),
        (['{"n": 3}'], "'n' is not a text"),
        (["{"], "the argument is not JSON"),
    ],
)
def test_what_spells_no_texts_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_texts(words)


def test_messages_are_printed_with_who_says_them(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"prompt": RESULT})
    assert main(["git/review", "branch=main", "-q"]) == 0
    image = "[image: image/png, 3 bytes; --json prints them]"
    assert capsys.readouterr().out == f"user: Look:\nuser: {image}\nassistant: a\nassistant: b\n"
    assert asked_for(daemon.asked) == [
        ("prompt", {"server": "git", "name": "review", "arguments": {"branch": "main"}})
    ]


@pytest.mark.parametrize("result", [{}, {"messages": None}, {"messages": [{"role": "user"}]}])
def test_a_sloppy_answer_is_shown_somehow(result: dict[str, Any]) -> None:
    assert len(list(messages(result))) <= 1
