"""`mcpd call`: one tool call through the daemon, as a model's call would go, from a terminal."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from daemon.cli.asking.companion import CallCompanion, add_conversation, converse
from daemon.cli.asking.person import Declined, Interrupted
from daemon.cli.contents import show, texts
from daemon.cli.control import EX_FAULT, RemoteFault, ask_with, guarded
from daemon.cli.options import add_control, add_json, parser
from daemon.cli.tool_name import read_tool, tool_name
from daemon.safety.escape import document

if TYPE_CHECKING:
    import argparse

CALL_SECONDS = 660.0
"""How long to wait for the result, without the time of questions to a person: longer than the daemon itself
waits for a call by default (`timeouts.callMax`, 600 s), so that its answer says what happened."""

Json = dict[str, Any]


class BadArguments(ValueError):
    """The command line has no arguments of a tool. The text says what to write."""


def main(argv: list[str]) -> int:
    """Call a tool.

    Returns:
        0: it worked; 1: the result is an error, printed on stderr; 2: usage; 3: the daemon is not reachable.
    """
    made = _parser()
    options = made.parse_intermixed_args(argv)  # `call a/b --json c=d`, too
    try:
        arguments = parse_arguments(options.arguments)
    except BadArguments as error:
        made.error(str(error))

    def act() -> int:
        server, tool = read_tool(options, options.tool)
        params = {"server": server, "tool": tool, "arguments": _completed(options, server, tool, arguments)}
        return _show(converse(options, server, "call", params), as_json=options.json)

    return guarded(act)


def _completed(options: argparse.Namespace, server: str, tool: str, given: Json) -> Json:
    """The arguments with those that are required and missing, which a person at the terminal is asked for."""
    person = CallCompanion.of(options, server).person()
    if person is None or options.arguments == ["-"]:
        return given
    from daemon.cli.asking.elicitation import missing  # noqa: PLC0415 - only with a terminal

    try:
        schema = ask_with(options, "tool", {"server": server, "tool": tool})["definition"]["inputSchema"]
        return {**given, **missing(schema, given, person)}
    except RemoteFault:
        return given  # An instance, or a server that has not listed yet: the call says what is wrong with it.
    except (Declined, Interrupted):
        raise KeyboardInterrupt from None


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "call",
        "Call one tool and print its result. Arguments are one JSON object, or KEY=VALUE pairs, or - to read a"
        " JSON object from stdin. A VALUE that is JSON is taken as JSON, anything else as text: limit=3 is a"
        " number, path=/tmp a text, tags='[\"a\"]' a list, and id='\"3\"' the text 3. Progress is shown on"
        " stderr."
        " A required argument that is missing is asked for in a terminal, else it is named and nothing is sent."
        " What the server asks meanwhile is asked here: a form question by question, a page to open only after"
        " a yes. Without a terminal, or with --no-input, it is declined.",
        examples=(
            "mcpd call time/get_current_time timezone=Europe/Berlin",
            'mcpd call git/git_log \'{"repo_path": ".", "max_count": 3}\'',
            "mcpd call fs/read_file - <arguments.json",
            "mcpd tools git/git_log      # its arguments, with an example call",
        ),
        exits={0: "the tool's result is printed", 1: "the call failed: the reason is on stderr"},
    )
    made.add_argument("tool", metavar="SERVER/TOOL", type=tool_name, help="as `mcpd tools` shows them")
    made.add_argument("arguments", metavar="ARGS", nargs="*", help="JSON object, KEY=VALUE ..., or -")
    add_json(made)
    add_conversation(made)
    add_control(made, CALL_SECONDS)
    return made


def parse_arguments(words: list[str]) -> Json:
    """The tool's arguments: from no words, one JSON object, `-` for stdin, or KEY=VALUE pairs.

    Raises:
        BadArguments: the words are none of these.
    """
    if words == ["-"]:
        return _object(sys.stdin.read(), "stdin")
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return _object(words[0], "the argument")
    arguments: Json = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise BadArguments(f"{word!r} is neither KEY=VALUE nor the only argument and a JSON object")
        if key in arguments:
            raise BadArguments(f"{key!r} is given twice")
        arguments[key] = _value(value)
    return arguments


def _object(text: str, source: str) -> Json:
    try:
        value = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise BadArguments(f"{source} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadArguments(f'{source} is not a JSON object, as in {{"key": "value"}}')
    return value


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except ValueError:
        return text


def _no_number(word: str) -> NoReturn:
    """Refuse NaN and Infinity, which are Python's and not JSON's."""
    raise ValueError(f"{word} is not JSON")


def _show(result: Json, *, as_json: bool) -> int:
    failed = bool(result.get("isError"))
    if as_json:
        print(document(result))
    else:
        stream = sys.stderr if failed else sys.stdout
        for text in texts(result):
            show(text, stream)
    return EX_FAULT if failed else 0
