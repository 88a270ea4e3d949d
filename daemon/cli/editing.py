"""`mcpd set`, `edit`, `pin`, `upgrade` and `enable`: change the configuration after checking the change."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import Any

import attrs
from msgspec import UNSET

from daemon.cli import adding_offers
from daemon.cli.add import configured, newest_version, own_directory, removal, spare
from daemon.cli.command import UsageError, agreed, for_each, has_terminal, lines, on_trial, trial_of
from daemon.cli.control import EX_FAULT, CommandFailed, DaemonUnreachable, RemoteFault, ask_with, note
from daemon.cli.secret import given
from daemon.cli.servers import switch
from daemon.cli.taking_effect import BACK, edited_file, finish, reloaded, tools_of, typed_as
from daemon.cli.terminal import typed
from daemon.config.config_files import FOLDER
from daemon.config.config_model import Config, Server
from daemon.config.expand import ENV_FILE, read_env
from daemon.config.jsonc import ROOT, decode, is_within, placed
from daemon.config.parse import load_changed
from daemon.config.redaction import secrets_of
from daemon.config.structure import keys, read
from daemon.config.translation import SERVERS
from daemon.documents.edited import EditedText, Trail, spelt, value_at, with_texts
from daemon.documents.files import DocumentError, Edit, look, write_all
from daemon.documents.formats import Format, read_document
from daemon.errors import ConfigError, Fault
from daemon.host.paths import state_dir
from daemon.kit.wording import camel, quoted, suggestion
from daemon.operators.change_reports import reloaded as in_words
from daemon.safety.escape import document, visible
from daemon.safety.redact import Redactor
from daemon.setup.adding import WantedServer, changes, named, with_versions
from daemon.setup.clients.installing import Records
from daemon.setup.drafts import EX_MEANWHILE, Draft, Present, changed, read_present
from daemon.setup.moved_secrets import Variables, is_read_by_programs, references, with_kept, with_references
from daemon.setup.settings import Setting, SettingsEdit, apply, differences, renamed
from daemon.states import COMING, WAITING
from daemon.surfaces.table import SURFACES

WHOLE = "."
"""Stands for the whole configuration in place of a server's name."""

_STEP = re.compile(r'\.?([^.\[\]"]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')


def set_keys(options: argparse.Namespace) -> int:
    """Write keys of an entry, and wait for the effect."""
    path, present, place = _place(options)
    was = value_at(read_document(present.config.text() or "", Format.JSON, source=str(path)).value(), place)
    known = [*(keys(Server) if place else (*keys(Config), "$schema"))]
    known += [each for each in was if each not in known] if isinstance(was, dict) else []

    def checked(trail: Trail) -> Trail:
        first = str(trail[0])
        if camel(first) in known or first in known:
            return trail
        is_variable = place and first.isupper()
        near = f": did you mean 'env.{first}'?" if is_variable else suggestion(first, known)
        raise ConfigError(str(path), [Fault(path=spelt(place), message=f"unknown key {quoted(first)}{near}")])

    if place and options.keys == ["-"]:
        wished = _entry(options, path, present, was)
        for each in wished:
            checked(each.trail)
        return _change(options, wished)
    wished, base = [], (SERVERS, options.server) if place else ()
    # What the entry refers to elsewhere than in its own `env`, as in a header, becomes a variable.
    env: Any = value_at(was, ("env",))
    all_of_it, its = present.config.text() or "", json.dumps(was)
    shared = {each for each in present.variables if all_of_it.count(f"${{{each}") > its.count(f"${{{each}")}
    lacks, stored = {*references(was)} - shared - {*(env if isinstance(env, dict) else ())}, dict[str, str]()
    lacks -= {each for each in lacks if is_read_by_programs(each)}
    for word, after in zip_longest(options.keys, options.keys[1:], fillvalue="="):
        key, equals, text = word.partition("=")
        trail = checked(_trail(key))
        if "=" not in word + after and camel(re.split(r"[.\[]", after)[0]) not in known:
            value = "VALUE" if trail[0] in {"env", "headers"} else after
            raise CommandFailed(f"'=' joins a key and its value: write {key}={value}")
        text = text if equals else given(f"the value of {key}", hidden=True)
        is_reference = equals and "${" in text
        if place and trail[0] == "env" and trail[1:] and trail[1] in lacks and not is_reference:
            stored[str(trail[1])] = text
        else:
            wished.append(Setting(trail=trail, value=_value((*base, *trail), text)))
    removals = " && ".join(f"{removal(path, each)} --yes" for each in stored)  # the entry refers to them
    is_undone = stored and not wished and present.variables.keys().isdisjoint(stored)
    return _change(options, wished, stored, f"`{removals}`" if is_undone else "")


def _place(options: argparse.Namespace) -> tuple[Path, Present, Trail]:
    """The file to change, its present text, and the path in it to the server (for `WHOLE`, empty)."""
    if (name := options.server) == WHOLE:
        return (path := edited_file(options)), read_present(path), ()
    path, present = configured(options, name)
    return path, present, present.places[name]


def _entry(options: argparse.Namespace, path: Path, present: Present, was: Any) -> list[Setting]:
    server = load_changed(path, {}, {**present.variables, **os.environ}).mcp_servers[options.server]
    if not isinstance(new := decode(given("the entry"), source="the entry")[0], dict):
        raise UsageError("an entry is an object, {...}")
    return [*differences(with_kept(new, was, secrets_of(server)[0]), was)]


def unset_keys(options: argparse.Namespace) -> int:
    """Remove keys of an entry, and wait for the effect."""
    # The last item of a list first: the others keep their places.
    trails = [*map(_trail, options.keys)]
    trails.sort(key=lambda trail: [at for at in trail if isinstance(at, int)], reverse=True)
    return _change(options, [Setting(trail=each, value=UNSET, holder_is_its=len(each) > 1) for each in trails])


def _trail(key: str) -> Trail:
    """Parse a key, spelt as in error messages: `env.TOKEN`, `args[1]`, `headers["X.Y"]`."""
    if not key or _STEP.sub("", key):
        raise UsageError(
            "write a key as in timeouts.call, args[1] or env.NAME; for `mcpd set`, =VALUE may follow"
        )
    return tuple(int(at) if at else name or json.loads(text) for name, at, text in _STEP.findall(key))


def _value(trail: Trail, text: str) -> object:
    """The value of a key that takes text; for other keys, the text parsed as JSON."""
    if _fits(trail, text):
        return text
    try:
        return decode(text, source=f"the value of {spelt(trail)}")[0]
    except ConfigError:
        if text.startswith(("[", "{", '"')):
            raise
        # A list of one needs no brackets.
        return [text] if _fits(trail, [text]) else text


def _fits(trail: Trail, value: object) -> bool:
    place, faults = spelt([step if isinstance(step, str) else 0 for step in trail]), list[Fault]()
    for step in reversed(trail):
        value = {step: value} if isinstance(step, str) else [value]
    read(Config, value, ROOT, faults)
    return not any(is_within(place, fault.path) for fault in faults)


def _change(
    options: argparse.Namespace,
    wished: list[Setting],
    stored: Mapping[str, str] = MappingProxyType({}),
    back: str = "",
    heading: str = "",
) -> int:
    """Write or remove keys. Secrets become variables, like `stored`; `back` undoes what `set` cannot."""
    name, (path, present, place) = options.server, _place(options)
    text = read_document(present.config.text() or "", Format.JSON, source=str(path))
    written: Any = value_at(text.value(), place)
    is_item = any(each.trail[:-1] == ("args",) for each in wished)
    split = _split(present.servers[name], written) if place and is_item else []

    def write(text: EditedText, settings: Sequence[Setting]) -> None:
        for each in settings:
            apply(text, each, (*place, *each.trail))

    write(text, split)
    before = [value_at(text.value(), (*place, *each.trail), UNSET) for each in wished]
    for each, value in zip(wished, before, strict=True):
        if each.value is UNSET is value:
            beside = value_at(text.value(), (*place, *each.trail[:-1]))
            near = suggestion(str(each.trail[-1]), beside) if isinstance(beside, dict) else ""
            raise CommandFailed(f"there is no {spelt((*place, *each.trail))} in {path}{near}")
    write(text, wished)
    used = [each for each in references(before) if each in present.variables and each not in os.environ]
    # A secret that is replaced goes where the former one is kept, unless something else refers to that.
    own = {each for each in used if f"${{{each}" not in text.text()}
    known = {**present.variables, **os.environ, **stored}
    free = {each: value for each, value in known.items() if each not in own}
    variables = Variables(known=free, kept={**stored})
    if place:
        server = load_changed(path, {path: text.text()}, known).mcp_servers[name]
        entry: Any = value_at(text.value(), place)
        entry = with_references(entry, name, secrets_of(server)[0], variables)
        now = [each.value if each.value is UNSET else value_at(entry, each.trail) for each in wished]
        wished = [attrs.evolve(each, value=value) for each, value in zip(wished, now, strict=True)]
    named = references([each.value for each in wished])
    kept = {each: value for each, value in variables.kept.items() if each in {*named, *stored}}
    draft = changed(present, lambda text: write(text, [*split, *wished]), kept, os.environ, surfaces=SURFACES)
    remark = f"kept in {present.env.path}, for you only: {', '.join(kept)}"
    for line in (*spare(path, own - kept.keys()), *([remark] if kept else ())):
        note(line)
    return _settle(options, path, draft, _undo_by(options, wished, before, draft) or back, heading=heading)


def _split(entry: Any, written: Any) -> list[Setting]:
    """The settings that divide a command line in `command` into `command` and `args`; empty if divided."""
    keys = ("command", "args")
    if not isinstance(written, dict) or any(written.get(key) == entry.get(key) for key in keys):
        return []
    return [Setting(trail=(key,), value=entry[key]) for key in keys]


def put(options: argparse.Namespace, wished: list[Setting], heading: str = "", *, keep: bool = True) -> int:
    """Change keys for a command that lacks the options of `mcpd set`; `heading` begins the line of the undo."""
    usual = {"keep": keep, "or_undo": not keep, "dry_run": False, "no_reload": False}
    options = argparse.Namespace(**{"json": False, "config": None, **vars(options), **usual})
    return _change(options, wished, heading=heading)


def _undo_by(options: argparse.Namespace, wished: list[Setting], before: list[object], draft: Draft) -> str:
    """The command that undoes settings; empty if no command can, or only one that quotes a secret."""
    verbs = {"unset" if was is UNSET else "set" for was in before}
    values = ["" if was is UNSET else f"={was if isinstance(was, str) else json.dumps(was)}" for was in before]
    words = [spelt(each.trail).removeprefix("$").removeprefix(".") for each in wished]
    words = [*verbs, options.server, *(key + value for key, value in zip(words, values, strict=True))]
    redact = Redactor(draft.secrets)
    # A quoted secret has another spelling, so the values are looked at, not the line.
    is_open = with_texts(before, lambda text: redact(text, len(text))) == before
    # Without an item, the others have other places.
    moved = any(each.value is UNSET and isinstance(each.trail[-1], int) for each in wished)
    is_all = draft.env == (draft.present.env.text() or "")
    # A former bundle is deleted.
    is_all = is_all and not any(value_at(was, ("bundle",), "") for was in before)
    return typed_as(options, *words) if not moved and len(verbs) == 1 and is_open and is_all else ""


def rename(options: argparse.Namespace) -> int:
    """Rename a server everywhere in the configuration."""
    old, (path, present) = options.server, configured(options, options.server)
    if (new := named(options.new)) in present.servers:
        raise CommandFailed(f"there is a server '{new}' in {path}; nothing was changed")
    place = (data := own_directory(options, old)).with_name(new)
    edit, undo = renamed(path, present.places[old], old, new, os.environ), typed_as(options, "rename", new, old)
    moves = (data, place) if data.is_dir() and not place.exists() else ()
    status = _settle(options, path, attrs.evolve(edit, moves=moves), undo, new)
    if new in read_present(path).servers:
        Records(state_dir(os.environ)).rename(old, new)
        if data.is_dir():
            note(f"its data stays in {data}" + ("" if moves else f": {place} exists already"))
        elif moves:
            note(f"its data has moved to {place}")
    return status


def _settle(
    options: argparse.Namespace,
    path: Path,
    draft: Draft | SettingsEdit,
    undo: str,
    becomes: str = "",
    heading: str = "",
) -> int:
    """Write a change, try it with the daemon, and say how to undo it."""
    if options.dry_run:
        print(visible(draft.diff(), lines=True), end="")
        return 0
    name = becomes or options.server
    if options.server != WHOLE:  # by this name: a rename back, for one, is tried under the other
        trial_of(options.server).unlink(missing_ok=True)
    if options.no_reload or options.server == WHOLE:
        draft.write()
        status, kept = 0 if options.no_reload else tell_reload(options, path), True
    else:
        with on_trial(options, name, undo):
            status, kept = _tried(options, name, path, draft)
    if not kept:
        return status
    if draft.stands:
        old = f"clients that name `--server {options.server}` do not follow"
        stays = f"{old}, and its login, switches and counts stay behind; " if becomes else ""
        if undo:
            (note if options.json or becomes else print)(visible(f"{heading}{stays}undo: {undo}"))
    elif not status:
        note(f"{path} was changed meanwhile: no single command undoes this change")
        status = EX_MEANWHILE
    return status


def _tried(options: argparse.Namespace, name: str, path: Path, draft: Draft | SettingsEdit) -> tuple[int, bool]:
    """Write a change, wait for its effect; return the exit status, and whether the user keeps an upgrade."""
    was, kept = dict[str, str](), True
    with suppress(DaemonUnreachable, RemoteFault, KeyError):
        was = tools_of(options, options.server)
        # What did not mend a server that is down has not broken it, either.
        seen = ask_with(options, "status", {})["servers"][options.server]
        is_down = seen["state"] in WAITING or (seen["state"] in COMING and seen["attempt"] > 0)
        options.keep = options.keep or (is_down and not options.or_undo)
    draft.write()
    status = finish(options, name, path, draft.undo, "the change stays")
    if options.change == "upgrade" and not status:
        kept = False
        try:
            kept = _is_kept(options, name, was)
        finally:  # also if a signal ends the question
            if not kept:
                draft.undo()
                note(BACK)
                status = tell_reload(options, path, name)
    return status, kept


def _is_kept(options: argparse.Namespace, name: str, was: Mapping[str, str]) -> bool:
    """Show how an upgrade changes a server's tools, and ask whether to keep it."""
    try:
        now, seen = tools_of(options, name), ask_with(options, "status", {})["servers"][name]
    except DaemonUnreachable:
        return True
    edited = {each for each in now.keys() & was if now[each] != was[each]}
    news = {"came": now.keys() - was, "went": was.keys() - now, "changed": edited}
    changes = [f"  {what}: {', '.join(sorted(names))}" for what, names in news.items() if names]
    same = "its tools are the same as before" if seen["state"] != "dormant" else "nobody has seen its tools yet"
    print(*map(visible, changes or [f"  {same}"]), sep="\n")
    return not has_terminal() or agreed("Keep it?", yes=options.yes)


def edit(options: argparse.Namespace) -> int:
    """Let a person edit files; a faulty file is not saved."""
    if not has_terminal():
        raise CommandFailed("an editor needs a terminal: `mcpd set SERVER KEY=VALUE` needs none")
    path = edited_file(options)
    for file in options.files or [path]:
        _edit(file.absolute(), path)
    return 0 if options.no_reload else tell_reload(options, path)


def _edit(file: Path, path: Path) -> None:
    """Have a person edit a copy of a file until it has no fault, then replace the file."""
    found = look(file)
    before = text = found.text() or ""
    is_sound = False
    with NamedTemporaryFile("w", dir=file.parent, prefix=".", suffix=f".{file.name}", delete=False) as made:
        made.write(before)
    copy = Path(made.name)
    try:
        while not is_sound:
            text = _after_editor(copy)
            try:
                is_sound = text == before or _is_sound(file, path, text)
            except (ConfigError, ValueError) as error:
                note(str(error), lines=True)
                if typed("(e)dit again, or e(x)it without saving? ") == "x":
                    text, is_sound = before, True
        write_all([Edit(found=found, text=text, private=True)] if text != before else [])
        copy.unlink()
    finally:
        if copy.exists() and copy.read_bytes() != before.encode():
            note(f"your text is kept in {copy}")
        else:
            copy.unlink(missing_ok=True)
    note(f"{file} is {'unchanged' if text == before else 'written'}")


def _after_editor(file: Path) -> str:
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    words = words or [next(filter(shutil.which, ("sensible-editor", "nano")), "vi")]
    try:
        subprocess.run([*words, str(file)], check=True)
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, subprocess.CalledProcessError) as error:
        raise CommandFailed(
            f"no text from the editor ({error}): set $VISUAL or $EDITOR to another editor"
        ) from None


def _is_sound(file: Path, path: Path, text: str) -> bool:
    """Raise the faults of a file's new text; an unset variable of a server is no fault."""
    if file.name == ENV_FILE:
        return read_env(text) is not None
    config = load_changed(path if file.parent.name == FOLDER else file, {file: text}, os.environ, SURFACES)
    faults = [each for server in config.mcp_servers.values() for each in server.faults if not each.variable]
    if faults:
        raise ConfigError(str(file), placed(faults, text))
    return True


def tell_reload(options: argparse.Namespace, path: Path, name: str = "") -> int:
    """Have the daemon reload, and print what changed."""
    effect = reloaded(options, path, name)
    if effect.problem:
        note(effect.problem, lines=True)
    else:
        print(document(effect.answer) if options.json else lines(*in_words(effect.answer)))
    return EX_FAULT if effect.asked and effect.problem else 0


def pin(options: argparse.Namespace) -> int:
    """Write the newest package versions into servers' commands, one server at a time."""
    if bool(options.servers) == options.all:
        raise UsageError("name servers, or write --all")
    names, options.newer = options.servers or read_present(edited_file(options)).servers, {}
    status = for_each(options, names, partial(_renew, options))
    if options.dry_run and options.json:
        print(document({"servers": options.newer}))
    return status


def _of(options: argparse.Namespace, name: str) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(options), "server": name})


def pins(entry: Mapping[str, Any], pinned: Mapping[str, str]) -> list[Setting]:
    """The settings that put packages with their new versions in place of an entry's arguments."""
    args = enumerate(entry.get("args", ()))
    return [Setting(trail=("args", at), value=pinned[word]) for at, word in args if word in pinned]


def _renew(options: argparse.Namespace, name: str) -> int:
    options, (path, present) = _of(options, name), configured(options, name)
    upgrades = options.change == "upgrade"
    found = load_changed(path, {}, os.environ).mcp_servers[name].faults
    if faults := [each for each in found if not each.variable]:
        raise ConfigError(str(path), faults)
    if upgrades and present.servers[name].get("origin"):
        return _renew_offered(options, path, present)
    server = WantedServer(name=name, entry=(entry := present.servers[name]))
    server = with_versions(server, newest_version, images=True, again=upgrades)
    bounds, about = " ".join(entry["args"][at] for at in server.bounds), ""
    for line in _remarks(options, server, bounds):
        note(line)
    for was, now in server.pinned.items():
        note(f"{name}: {was} becomes {now}")
        if upgrades and (address := changes(now, os.environ)):
            note(f"changes: {(about := address)}")
    if server.pinned:
        news = {"becomes": [*server.pinned.items()], "changes": about}
        status = _renewed(options, pins(entry, server.pinned), news, {})
        if status and bounds and configured(options, name)[1].servers[name] == entry:
            note(f"{name}: another try, without {bounds}")
            rest = [word for at, word in enumerate(server.entry["args"]) if at not in server.bounds]
            whole = {"command": entry["command"], "args": rest}
            status = _change(options, [Setting(trail=(key,), value=value) for key, value in whole.items()])
        return status
    if not server.kept:
        note(f"{name}: nothing in its entry is left to {'upgrade' if upgrades else 'pin'}")
    return 0 if options.all else EX_FAULT


def _remarks(options: argparse.Namespace, server: WantedServer, bounds: str) -> Iterator[str]:
    for word in server.loose:
        yield f"{word} is not pinned: neither npm nor uv found a version, and no such image was pulled"
    for word, newest in server.kept:
        yield f"{server.name}: {word} stays: the newest version that was found is {newest}"
    if bounds:
        out = typed_as(options, "unset", server.name, *(f"args[{at}]" for at in server.bounds))
        yield f"{server.name}: its entry holds {bounds}, which a newer version may not need: {out} removes it"


def _renew_offered(options: argparse.Namespace, path: Path, present: Present) -> int:
    name, origin = options.server, present.servers[options.server]["origin"]
    with ExitStack() as undo:
        variables = Variables(known={**present.variables, **os.environ})
        if not (newer := adding_offers.renewed(options, present, undo, variables)):
            return 0 if options.all else EX_FAULT
        wished = [Setting(trail=(key,), value=value) for key, value in newer.items()]
        becomes = tuple(f"{each['name']} {each['version']}" for each in (origin, newer["origin"]))
        former = (f"registry:{origin['name']}", "--version", origin["version"])
        back, news = typed_as(options, "add", name, *former, "--replace"), {"becomes": [becomes], "changes": ""}
        status = _renewed(options, wished, news, variables.kept, back)
        return status or adding_offers.cleared(present, name, look(path).text() or "", runs=options.no_reload)


def _renewed(
    options: argparse.Namespace, wished: list[Setting], news: object, kept: Mapping[str, str], back: str = ""
) -> int:
    """Write newer versions, or with --dry-run and --json only report them."""
    options.newer[options.server] = news
    return 0 if options.dry_run and options.json else _change(options, wished, kept, back)


def enable(options: argparse.Namespace) -> int:
    """Switch servers on, also in the configuration if it switches one off."""
    return for_each(options, options.names, partial(_enable, options))


def _enable(options: argparse.Namespace, name: str) -> int:
    path, is_off = edited_file(options), False
    with suppress(ConfigError, DocumentError):  # the daemon may have another, or read it alone
        present = read_present(path)
        is_off = value_at(present.servers, (name, "enabled"), True) is False
    if not is_off:
        return switch(options, [name], off=False)
    note(f"{path} has {name} off")
    text = read_document(present.config.text() or "", Format.JSON, source=str(path))
    foreign = value_at(text.value(), (*present.places[name], "disabled"), UNSET) is not UNSET
    setting = Setting(trail=("disabled" if foreign else "enabled",), value=not foreign)
    return _change(_of(options, name), [setting])
