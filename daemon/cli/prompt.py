"""`mcpd prompt`: the messages of one prompt, as a person reads them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from daemon.cli.asking.companion import add_conversation, converse
from daemon.cli.call import CALL_SECONDS
from daemon.cli.contents import show, text
from daemon.cli.control import guarded
from daemon.cli.options import add_control, add_json, parser
from daemon.config.labels import split_off
from daemon.safety.escape import document

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

Json = dict[str, Any]


def main(argv: list[str]) -> int:
    """Get a prompt.

    Returns:
        0: its messages are printed; 1: there is no such prompt, or its server refuses; 2: usage; 3: the daemon
        is not reachable.
    """
    made = _parser()
    options = made.parse_args(argv)
    server, name = split_off(options.prompt)
    if not server:
        made.error(f"write SERVER/NAME, not {options.prompt!r}: `mcpd prompts` lists them")
    try:
        arguments = parse_texts(options.arguments)
    except ValueError as error:
        made.error(str(error))
    params = {"server": server, "name": name, "arguments": arguments}
    return guarded(lambda: _show(converse(options, server, "prompt", params), as_json=options.json))


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "prompt",
        "Print the messages of a prompt: who says what. Arguments are KEY=VALUE pairs, or one JSON object of"
        " texts; their values are always texts.",
        examples=("mcpd prompt git/review branch=main", 'mcpd prompt git/review \'{"branch": "main"}\' --json'),
        exits={0: "the messages are printed", 1: "there is no such prompt, or its server refuses it"},
    )
    made.add_argument("prompt", metavar="SERVER/NAME", help="as `mcpd prompts` shows them")
    made.add_argument("arguments", metavar="ARGS", nargs="*", help="KEY=VALUE ..., or a JSON object")
    add_json(made)
    add_conversation(made)
    add_control(made, CALL_SECONDS)
    return made


def parse_texts(words: list[str]) -> dict[str, str]:
    """The arguments of a prompt, which are texts, from KEY=VALUE pairs or one JSON object.

    Raises:
        ValueError: the words are neither; the text says what to write.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return _object(words[0])
    arguments: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ValueError(f"{word!r} is neither KEY=VALUE nor the only argument and a JSON object")
        if key in arguments:
            raise ValueError(f"{key!r} is given twice")
        arguments[key] = value
    return arguments


def _object(word: str) -> dict[str, str]:
    try:
        value = json.loads(word)
    except ValueError as error:
        raise ValueError(f"the argument is not JSON: {error}") from None
    if wrong := [key for key, each in value.items() if not isinstance(each, str)]:
        raise ValueError(f"{wrong[0]!r} is not a text: the arguments of prompts are texts")
    return dict(value)


def messages(result: Json) -> Iterator[str]:
    """A GetPromptResult as texts: who says it, and what."""
    for message in result.get("messages") or []:
        content = message.get("content")
        for item in content if isinstance(content, list) else [content]:
            yield f"{message.get('role')}: {text(item if isinstance(item, dict) else {})}"


def _show(result: Json, *, as_json: bool) -> int:
    if as_json:
        print(document(result))
    else:
        for said in messages(result):
            show(said, sys.stdout)
    return 0
