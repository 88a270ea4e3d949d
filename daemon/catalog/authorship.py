"""Questions of servers to users and models name the server first, in mcpd's words.

A client sees one server, mcpd, and shows every question as mcpd's. So the text of a server begins with
`Server NAME asks: `, each further line of it with `> `, and hidden characters in it are spelt out. Questions of
mcpd's own begin with `OURS`, which no text of a server can. What a user could be tricked by beyond its text is
refused: a URL that is not http or https, and names and choices with hidden characters, since an answer repeats
those.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from daemon.config.labels import server_of
from daemon.protocol import LIST_ROOTS
from daemon.safety.escape import legible

OURS = "mcpd asks: "
"""How each question of mcpd's own begins."""

_ANSWERED = frozenset({"const", "enum", "default", "pattern"})
"""Members of a schema whose values are answers, or match them: they stay as they are, or are refused."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class UnsafeQuestion(Exception):
    """A question that no user is shown; the text says why."""


def authored(server: str, method: str, params: Raw | None) -> Raw | None:
    """The params of a server's request as a client is to get them.

    Args:
        server: the server, or an instance of it.
        method: the method of the request.
        params: its params, raw.

    Raises:
        UnsafeQuestion: they are not to be shown, or cannot be read.
    """
    if params is None or method == LIST_ROOTS:
        return params
    try:
        said = _decode(params)
        if method == "elicitation/create":
            said = authored_elicitation(server, said)
        else:
            said["systemPrompt"] = words_of(server, str(said.get("systemPrompt") or "for this completion"))
            said["messages"] = _spelt(said.get("messages"))
        return Raw(msgspec.json.encode(said))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnsafeQuestion(f"its params cannot be read: {error}") from None


def authored_elicitation(server: str, said: dict[str, Any]) -> dict[str, Any]:
    """One elicitation, decoded (`authored`).

    Raises:
        UnsafeQuestion: it is not to be shown.
    """
    told = {**said, "message": words_of(server, str(said.get("message") or ""))}
    if "url" in said or said.get("mode") == "url":
        _require_url(said.get("url"))
    if "requestedSchema" in said:
        told["requestedSchema"] = _spelt(said["requestedSchema"])
    return told


def words_of(server: str, text: str) -> str:
    """A server's text as a user reads it: under the server's name."""
    lines = [legible(line) for line in text.splitlines()] or [""]
    if len(lines) == 1:
        return f"Server {server_of(server)} asks: {lines[0]}"
    return "\n> ".join((f"Server {server_of(server)} asks:", *lines))


def _require_url(url: object) -> None:
    try:
        parts = urlsplit(url) if isinstance(url, str) and legible(url) == url else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UnsafeQuestion("its url is not one of http or https")


def _spelt(value: Any, *, answer: bool = False) -> Any:
    """A value with the hidden characters of its texts spelt out."""
    if isinstance(value, str):
        if not answer:
            return "\n".join(map(legible, value.split("\n")))
        if legible(value) != value:
            raise UnsafeQuestion("it has hidden characters in a name or a choice")
        return value
    if isinstance(value, list):
        return [_spelt(each, answer=answer) for each in value]
    if not isinstance(value, dict):
        return value
    for name in value:
        _spelt(name, answer=True)
    return {name: _spelt(each, answer=answer or name in _ANSWERED) for name, each in value.items()}
