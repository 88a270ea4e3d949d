"""`mcpd sandbox` and `mcpd allow-host`: show, learn, edit and enter a server's sandbox."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from daemon.cli.command import UsageError, asking, has_terminal
from daemon.cli.control import CommandFailed, Message, RemoteFault, ask_with, note, say
from daemon.cli.table import UP_SECONDS
from daemon.kit.later import later
from daemon.kit.wording import counted, span
from daemon.safety.escape import document

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from daemon.cli import add, editing, inside
    from daemon.config import parse
    from daemon.config.config_model import Server
    from daemon.setup import settings
else:  # `--show` needs none of them.
    add, editing = later("daemon.cli.add"), later("daemon.cli.editing")
    inside, parse = later("daemon.cli.inside"), later("daemon.config.parse")
    settings = later("daemon.setup.settings")

LESSON_SECONDS = 600.0
"""Default seconds of learning: time to use each tool once."""

# --- show -------------------------------------------------------------------------------------------------


_MEANS = {
    "home": "hides your secrets; the server reads your files, and writes its own",
    "strict": "lets the server reach its program, its own files, and only the hosts that you allow",
    "off": "is no sandbox: the server may do what you may",
}


def shown(answer: Message) -> list[str]:
    """The sandbox's rules, and the hosts that the server reached or was refused."""
    server, rules = answer["server"], answer["rules"]
    lines = [f"{server}: {answer['mode']}, which {_MEANS[answer['mode']]}"]
    if answer["learning"]:
        lines = [f"{server} runs without its sandbox, and mcpd watches what it needs"]
    for part in ("filesystem", "network"):
        lines += [f"  {key}: {', '.join(each) or 'none'}" for key, each in (rules or {}).get(part, {}).items()]
    lines += [f"  reached {host} {counted(count, 'time')}" for host, count in answer["reached"].items()]
    for each in answer["refused"]:
        helps = f"mcpd allow-host {server} {each['allow']}" if each["allow"] else each["reason"]
        lines.append(f"  wanted {each['host']} {counted(each['count'], 'time')}: {helps}")
    return lines


_show = asking("sandbox", "server", shown)

# --- learn ------------------------------------------------------------------------------------------------


def _lesson(options: argparse.Namespace, calls: list[Message]) -> float:
    """End a lesson after the file's calls, or after the time of the user; returns the seconds that it took."""
    began = time.monotonic()
    try:
        _replay(options, calls) if options.calls else _wait(options)
    except KeyboardInterrupt:
        note("the lesson ends")
    ask_with(options, "learned", {"server": options.server})
    return time.monotonic() - began


def _wait(options: argparse.Namespace) -> None:
    ends = ", until Enter or Ctrl-C" if has_terminal() else ""
    now = f"use it now, {span(options.length)}{ends}"
    note(f"{options.server} runs without its sandbox, and is watched: {now}")
    if select.select([sys.stdin] if has_terminal() else [], [], [], options.length)[0]:
        sys.stdin.readline()


def _replay(options: argparse.Namespace, calls: list[Message]) -> None:
    for call in calls:
        tool = call["tool"].removeprefix(f"{options.server}/")
        wish = {"server": options.server, "tool": tool, "arguments": call.get("arguments", {})}
        try:
            failed = ask_with(options, "call", wish).get("isError")
            note(f"called {tool}" + (": it answered with an error" if failed else ""))
        except RemoteFault as fault:
            note(f"called {tool}: {fault}")


def _learn(options: argparse.Namespace) -> int:
    options.length = options.length or LESSON_SECONDS
    calls = _calls(options.calls) if options.calls else []
    wish = {"server": options.server, "mode": options.mode or "home", "seconds": options.length}
    # The daemon ends the lesson by itself if this command cannot.
    note(f"starts {options.server} without its sandbox")
    # The server may install its package before it is up, and the lesson begins.
    seconds = options.timeout + options.length
    answer = ask_with(options, "learn", wish, lambda *_: _lesson(options, calls), timeout=seconds)
    if options.json:
        print(document(answer))
    else:
        say(f'"sandbox": {json.dumps(answer["sandbox"], ensure_ascii=False, indent=2)}')
        say(*(f"  {each['key']} {each['value']}: {each['why']}" for each in answer["lines"]))
    for each in answer["notes"]:
        note(each)
    # Inside, it may install its package once more.
    options.timeout = max(options.timeout, UP_SECONDS)
    return _put(options, answer["sandbox"], keep=False) if options.write else 0


def _calls(path: Path) -> list[Message]:
    try:
        read = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if all(isinstance(each["tool"], str) for each in read):
            return read
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CommandFailed(f"{path} cannot be replayed: {error}") from None
    raise CommandFailed(f'{path}: each line is a call: {{"tool": "NAME", "arguments": {{}}}}')


# --- write ------------------------------------------------------------------------------------------------


def _entry(options: argparse.Namespace) -> tuple[Path, Server]:
    """The configuration's path and the server's entry; raises `CommandFailed`."""
    path, _ = add.configured(options, options.server)
    return path, parse.load(path, os.environ).mcp_servers[options.server]


def _put(options: argparse.Namespace, value: object, *below: str, keep: bool = True) -> int:
    """Write an entry's `sandbox`, or a key in it, and wait until the server is up again."""
    name, (path, server) = options.server, _entry(options)
    if server.sandbox_enabled is False:
        text = f"`sandboxEnabled` of {name} in {path} is false, and overrides `sandbox`"
        raise CommandFailed(f"{text}: remove it first; nothing was changed")
    note(f"sets the sandbox of {name} in {path}; the server restarts")
    return editing.put(options, [settings.Setting(trail=("sandbox", *below), value=value)], keep=keep)


def allow_host(options: argparse.Namespace) -> int:
    """Let a server's sandbox reach further hosts."""
    path, server = _entry(options)
    rules = server.written.confined
    if rules is None:
        raise CommandFailed(f"{server.name} has no sandbox in {path}, so no host is refused")
    for each in options.hosts:
        if each in rules.network.denied_domains:
            raise CommandFailed(f"`deniedDomains` of {server.name} in {path} has {each}: remove it there first")
    allowed = list(dict.fromkeys((*rules.hosts, *options.hosts)))
    if len(allowed) == len(rules.hosts):
        say(f"{server.name} may reach {', '.join(options.hosts)} already")
        return 0
    if hasattr(server.sandbox, "network"):
        return _put(options, allowed, "network", "allowedDomains")
    value: Any = rules.as_written()
    return _put(options, {**value, "network": {**value.get("network", {}), "allowedDomains": allowed}})


# --- shell ------------------------------------------------------------------------------------------------


def _shell(options: argparse.Namespace) -> int:
    path, server = _entry(options)
    if server.confined is None:
        raise CommandFailed(f"{server.name} has no sandbox in {path}")
    shell = shutil.which(os.environ.get("SHELL", "")) or "/bin/sh"
    note(f"a shell in the sandbox of {server.name}; exit leaves it, and Ctrl-C does not reach it")
    signal.signal(signal.SIGINT, lambda *_: None)
    return int(inside.run(server, path, [shell]))


def sandbox(options: argparse.Namespace) -> int:
    """Show, learn or enter a server's sandbox."""
    if (options.write or options.calls) and not options.learn:
        raise UsageError("--write and --calls need --learn")
    return (_shell if options.shell else _learn if options.learn else _show)(options)
