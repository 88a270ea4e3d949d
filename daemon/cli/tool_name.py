"""The one way in which commands read the name of a tool: `SERVER/TOOL`, else the daemon says what is meant."""

from __future__ import annotations

import argparse
import sys

from daemon.cli.control import ask_with
from daemon.config.labels import split_off
from daemon.safety.escape import visible


def tool_name(word: str) -> str:
    """A word that may name a tool, for argparse.

    Raises:
        argparse.ArgumentTypeError: one of the two sides of its slash is empty.
    """
    if not word or ("/" in word and not split_off(word)[0]):
        raise argparse.ArgumentTypeError(f"write SERVER/TOOL, not {word!r}: `mcpd tools` lists them")
    return word


def read_tool(options: argparse.Namespace, name: str) -> tuple[str, str]:
    """The server or instance, and its tool, that a name means; another spelling is told on stderr.

    Args:
        options: of the command line, for asking the daemon.
        name: `SERVER/TOOL`, or a bare name that one server has, or `mcp__SERVER__TOOL` as clients write it.

    Raises:
        RemoteFault: the daemon knows no such tool, or several.
        DaemonUnreachable: no daemon answers.
    """
    server, tool = split_off(name)
    if server:
        return server, tool
    answer = ask_with(options, "tool", {"tool": name})
    print(visible(f"mcpd: {name} is {answer['server']}/{answer['tool']}"), file=sys.stderr)
    return str(answer["server"]), str(answer["tool"])
