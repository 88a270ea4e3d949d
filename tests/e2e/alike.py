"""What a client sees of one server, to compare two ways to it: its lists, and what requests bring."""

import json
from collections.abc import Iterable
from typing import Any

from tests.e2e.windows import Window

Json = dict[str, Any]

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def call(tool: str, /, **arguments: Any) -> tuple[str, Json]:
    """A call of a tool."""
    return "tools/call", {"name": tool, "arguments": arguments}


def seen(window: Window, asked: Iterable[tuple[str, Json]]) -> dict[str, str]:
    """What is answered to the handshake, to the requests for all lists and to those given.

    Results are compared as text: what a server answers passes as it is. In a list the order of an object's
    members may be another one, of an error only the code counts, and mcpd announces changes of all lists, since
    the server may be restarted with others.
    """
    handshake = window.begin()
    for capability in handshake["capabilities"].values():
        if "listChanged" in capability:
            capability["listChanged"] = True
    found = {"initialize": json.dumps(handshake, sort_keys=True)}
    for method, member in LISTS.items():
        found[method] = json.dumps(_listed(window, method, member), sort_keys=True)
    for method, params in asked:
        answer = window.ask(method, params)
        found[f"{method} {json.dumps(params)}"] = json.dumps(answer.get("result", answer.get("error")))
    return found


def _listed(window: Window, method: str, member: str) -> Any:
    """A list with all its pages; the code of the error where a server has no such list."""
    items: list[Json] = []
    params: Json = {}
    while "result" in (answer := window.ask(method, params)):
        items += answer["result"][member]
        if "nextCursor" not in answer["result"]:
            return items
        params = {"cursor": answer["result"]["nextCursor"]}
    return answer["error"]["code"]


def differences(one: dict[str, str], two: dict[str, str]) -> dict[str, tuple[str, str]]:
    """What the two ways answer differently."""
    return {key: (text, two.get(key, "nothing")) for key, text in one.items() if text != two.get(key)}
