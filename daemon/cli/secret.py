"""`mcpd secret`: the secrets that entries refer to as `${keyring:NAME}`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from daemon.cli.command import UsageError, has_terminal
from daemon.cli.control import CommandFailed, say
from daemon.cli.terminal import typed
from daemon.config.expand import MAX_FILE
from daemon.host.paths import config_file
from daemon.safety.escape import document
from daemon.secrets import keyring
from daemon.setup.drafts import Present, changed, in_keyring, read_present
from daemon.setup.moved_secrets import references


def secret(options: argparse.Namespace) -> int:
    """Store, list or remove secrets of the keyring."""
    action, name = options.action or "list", "".join(options.name)
    present = read_present(config_file(os.environ))
    if len(options.name) != (action != "list"):  # perhaps by the value, which is not to be shown
        raise UsageError("write `mcpd secret list`, `mcpd secret remove NAME` or `mcpd secret set NAME <FILE`")
    if action == "list":
        _list(present, as_json=options.json)
        return 0
    is_variable = action == "remove" and name in present.variables
    by = _users(present, name, references if is_variable else in_keyring)
    if action == "set":
        where = keyring.write(name, given(f"the value of {keyring.checked(name)}", hidden=True), os.environ)
        news = (f"`mcpd restart {server}` gives {server} the new value" for server in by)
        say(f"{name} is kept in {where}", *news)
    elif by and not options.yes:
        raise CommandFailed(f"{', '.join(by)} cannot start without {name}: --yes removes it anyway")
    else:
        if is_variable:  # `mcpd add` puts secrets into the file `env`, too
            changed(present, lambda _: None, {}, os.environ, {name} if options.yes else (), {name}).write()
        elif not keyring.remove(name, os.environ):
            raise CommandFailed(f"there is no secret {name}: `mcpd secret list` shows all")
        say(f"{name} is removed", *(f"{server} still refers to it" for server in by))
    return 0


def given(what: str, *, hidden: bool = False) -> str:
    """All of stdin less one last newline; if `hidden`, a person types an unseen line. Raises SecretTrouble."""
    if hidden and has_terminal():
        prompt = f"{what[0].upper()}{what[1:]} (not shown): "
        content = typed(prompt, hidden=True).encode(errors="surrogateescape")
    else:
        content = sys.stdin.buffer.read(MAX_FILE + 2).removesuffix(b"\n")
    return keyring.text_of(content, what)


def _list(present: Present, *, as_json: bool) -> None:
    kept, used = keyring.names(os.environ), in_keyring(present.servers)
    rows = [(name, kept.get(name), _users(present, name)) for name in sorted({*kept, *used})]
    if as_json:
        keys = ("name", "where", "servers")
        print(document({"secrets": [dict(zip(keys, row, strict=True)) for row in rows]}))
    elif rows:
        say(*(f"{name}: {where or 'not there'}; {', '.join(by) or 'not used'}" for name, where, by in rows))
    else:
        say("there is no secret: `mcpd secret set NAME` stores one")


def _users(present: Present, name: str, named_in: Callable[[object], list[str]] = in_keyring) -> list[str]:
    return [server for server, entry in present.servers.items() if name in named_in(entry)]
