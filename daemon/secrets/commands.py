"""Looks up ${run:...} and ${keyring:...} when a server starts, and again if the server refuses them.

Commands run without a shell, for a short time, and end with all their descendants.
"""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from daemon.causes import Cause
from daemon.config.config_model import LATE, Server, TransportType
from daemon.config.redaction import secrets_of
from daemon.errors import CannotStart, RunError
from daemon.host import paths
from daemon.processes.children import MOST_PRINTED, Children
from daemon.safety.redact import SHORTEST, Redactor
from daemon.secrets import keyring

SECONDS = 10.0
"""Most seconds of one command, in which a person can unlock a vault; the server's callers wait meanwhile."""

SHOWN = 300
"""Most characters shown of a command's error line."""


async def said(words: Sequence[str], environ: Mapping[str, str], children: Children) -> str:
    """The text that a command prints, without its last line break. Raises SecretTrouble."""
    home = str(paths.home(environ))
    try:
        ran = await children.run(
            [home + each[1:] if each.startswith("~/") else each for each in words], environ, SECONDS
        )
    except RunError as error:
        raise keyring.SecretTrouble(f"{error} (PATH is {environ.get('PATH', os.defpath)})") from None
    return await trio.to_thread.run_sync(_judged, shlex.join(words), *ran)


def _judged(command: str, status: int | None, printed: bytearray, errors: bytearray) -> str:
    text = printed.decode(errors="replace").removesuffix("\n").removesuffix("\r")
    problems = {
        f"printed more than {MOST_PRINTED // 1024} KiB": status in {None, 0} and len(printed) > MOST_PRINTED,
        f"did not end within {SECONDS:g} s: it may wait for a person, or for a network": status is None,
        f"failed with exit status {status}": status != 0,
        "printed nothing": not text,
        "printed something other than UTF-8 text": "\0" in text or text.encode() not in printed,
    }
    if not (problem := next((each for each, is_so in problems.items() if is_so), "")):
        return text
    lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
    # Of a line without a beginning, nobody can tell a secret's rest from other words.
    last = f": {lines[-1]}" if lines and (len(lines) > 1 or len(errors) <= MOST_PRINTED) else ""
    # Words of the command, and of its error, are no secrets for being short lines, such as those of `yes`.
    hide = Redactor((text, *(each for each in map(str.strip, text.splitlines()) if len(each) >= SHORTEST)))
    raise keyring.SecretTrouble(f"`{hide(command, SHOWN)}` {problem}{hide(last, SHOWN)}")


class RunSecrets:
    """The secret values of running servers, in memory only."""

    def __init__(self, children: Children, hide: Callable[..., None] = lambda *_: None) -> None:
        self._children, self._hide = children, hide
        self._kept: dict[tuple[str, tuple[str, ...]], Mapping[str, str]] = {}
        """Values by server and references; a server's instances share them until a run of one ends."""
        self._turns: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)

    async def filled(self, server: Server) -> Server:
        """The server with values in place of references; CannotStart if a value cannot be found."""
        if not server.late:
            return server
        async with self._turns[server.name]:
            key = server.name, server.late
            values = self._kept[key] = self._kept.get(key) or await self._look_up(server)
        made = server.rewritten(lambda text: LATE.sub(lambda found: values[found[1]], text))
        # No login is for such a url (`Server.has_token`).
        oauth = made.oauth if made.url == server.url else False
        made = attrs.evolve(made, oauth=oauth, credentials=made.credentials.union(values.values()))
        self._hide(made.name, *await trio.to_thread.run_sync(secrets_of, made))
        return made

    def ended(self, server: Server) -> None:
        """Forget the values of a run; the next run looks them up."""
        self._kept.pop((server.name, server.late), None)

    async def _look_up(self, server: Server) -> Mapping[str, str]:
        """Look up references one after the other: each may ask a person to unlock something."""
        values: dict[str, str] = {}
        for each in server.late:
            kind, _, rest = each.partition(":")
            try:
                if kind == "run":
                    values[each] = await said(shlex.split(rest), os.environ, self._children)
                else:
                    values[each] = await trio.to_thread.run_sync(keyring.read, rest, os.environ)
                if server.type is not TransportType.STDIO and not values[each].isprintable():
                    raise keyring.SecretTrouble(f"`{rest}` printed several lines: a header or url takes one")
            except keyring.SecretTrouble as trouble:
                named = {"error": str(trouble), "command" if kind == "run" else "secret": rest}
                raise CannotStart(str(trouble), Cause.SECRET_UNAVAILABLE, **named) from None
        return values
