"""Adds servers from registries and bundles (`mcpd add`): looks them up, shows them, asks for their inputs."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from daemon.cli.command import UsageError, agreed, has_terminal
from daemon.cli.control import CommandFailed, note
from daemon.cli.taking_effect import typed_as, without_sandbox
from daemon.cli.terminal import typed
from daemon.config.command_lines import packages_in, runs_container
from daemon.config.config_model import EntryOrigin, Server
from daemon.config.redaction import names_credential
from daemon.documents.edited import value_at, with_texts
from daemon.documents.files import look
from daemon.errors import McpdError
from daemon.host.paths import config_file
from daemon.kit.later import later
from daemon.safety.escape import visible
from daemon.safety.redact import HIDDEN
from daemon.sandbox import launch
from daemon.setup.adding import is_newer, pairs, web_address
from daemon.setup.drafts import Present
from daemon.setup.moved_secrets import Variables
from daemon.sources.offers import INPUT, Input, ServerOffer, SourceTrouble, asking, filled, missing, prose

_bundles, _registries = later("daemon.sources.bundles"), later("daemon.sources.registries")
"""Imported late: they load an HTTP client, which most commands do without."""

MOST_MORE = 4
"""Optional inputs that mcpd asks for: some servers have dozens."""

_HOME = ": the server reads your files but no secrets, writes only its own, and reaches public hosts"


def given(options: argparse.Namespace) -> dict[str, dict[str, str]]:
    """The variables and headers on the command line. Raises WordsError."""
    return {"env": pairs(options.env, "=", "key"), "headers": pairs(options.header, ":", "header")}


def found(options: argparse.Namespace, present: Present, undo: ExitStack) -> ServerOffer | None:
    """The offer of the registry's server or bundle that the command line names; None if it names neither.

    `undo` deletes a bundle that was unpacked. Raises SourceTrouble and ConfigError.
    """
    target, path = options.words[-1] if options.words and not options.rest else "", present.config.path
    if target.startswith("registry:"):
        offer = lookup(target.partition(":")[2], path, options.version, offline=options.offline)
    elif options.version or options.offline:
        raise UsageError("--version and --offline are for registry:SERVER; for a package, write npm:PACKAGE@V")
    elif target.lower().endswith((".mcpb", ".dxt")):
        offer = _bundles.taken(target if "://" in target else Path(target), environ=os.environ, private=True)
    else:
        return None
    # Meanwhile, another server may have been added that runs the same files.
    undo.callback(lambda: _bundles.remove(offer.origin.bundle, os.environ, look(path).text() or ""))
    # Notes may differ each time, and answers are not of the offer.
    text = json.dumps(attrs.asdict(attrs.evolve(offer, notes=())), sort_keys=True)
    shown, origin = hashlib.sha256(text.encode()).hexdigest(), offer.origin
    if options.shown not in {None, shown}:
        is_now = f"version {origin.version}" + (f", hash {origin.hash}" if origin.hash else "")
        raise CommandFailed(f"{origin.name} differs from the shown one: now {is_now}; nothing was changed")
    if options.dry_run:
        note(f"`--shown {shown}` adds only what is shown here")
    return offer


def cleared(before: Present, name: str, text: str, *, runs: bool = False) -> int:
    """Delete a former entry's bundle unless `text` names it; if its server `runs`, only say how. Returns 0."""
    bundle = value_at(before.servers, (name, "origin", "bundle"))
    if gone := _bundles.remove(bundle, os.environ, text, keep=runs):
        path = shlex.quote(str(gone))
        how = f"after `mcpd reload`, `chmod -R u+w {path} && rm -r {path}` deletes its bundle"
        note(how if runs else f"deleted its bundle, {gone}")
    return 0


def lookup(name: str, path: Path, version: str | None, *, offline: bool, fetches: bool = True) -> ServerOffer:
    """Look a server up; `fetches` also gets its hashes or its bundle. Raises SourceTrouble and ConfigError."""
    registries = _registries.opened(path, os.environ, offline=offline)
    where, document = registries.server(name, version)
    offer: ServerOffer = _registries.offer_of(document, where, os.environ, offline=offline or not fetches)
    return attrs.evolve(offer, notes=(*registries.notes, *offer.notes))


def renewed(
    options: argparse.Namespace, present: Present, undo: ExitStack, variables: Variables
) -> dict[str, Any]:
    """The keys of an entry that change with its registry's newest version; empty if no version is newer.

    Old answers stay and new inputs are asked for; `undo` as in `found`. Raises SourceTrouble and CommandFailed.
    """
    entry, path, name = present.servers[options.server], present.config.path, options.server
    origin = EntryOrigin(**entry["origin"])
    if origin.registry is None:
        note(f"{name} comes from a bundle: `mcpd add {name} FILE.mcpb --replace` puts a newer one in its place")
        return {}
    registries = attrs.evolve(_registries.opened(path, os.environ), urls=(origin.registry,))
    where, document = registries.server(origin.name)
    if not is_newer(version := document["version"], origin.version, "semver"):
        note(f"{name}: {origin.name} {origin.version} stays: {where} has no newer version than {version}")
        return {}
    offer: ServerOffer = _registries.offer_of(document, where, os.environ)
    undo.callback(lambda: _bundles.remove(offer.origin.bundle, os.environ, look(path).text() or ""))
    fixed = filled(attrs.evolve(offer, inputs=()), {})
    newest = {each.pinned: each.written for each in packages_in(_words(fixed))}
    becomes = {each.written: newest.get(each.pinned) for each in packages_in(_words(entry))}
    becomes |= {f"{origin.name} {origin.version}": f"{origin.name} {version}"}
    becomes |= {str(origin.bundle): offer.origin.bundle, str(origin.hash): offer.origin.hash}
    changes = {was: now for was, now in becomes.items() if now and was not in {now, "None"}}
    for was, now in changes.items():
        note(f"{name}: {was} becomes {now}")
    replaced = partial(re.compile("|".join(map(re.escape, changes))).sub, lambda found: changes[found[0]])
    made = with_texts({key: entry[key] for key in offer.entry if key in entry}, replaced)
    former = with_texts(_former(registries, origin), replaced)
    args, own = _placed(offer, former, made.get("args", []))
    if former is None and own != []:
        gone = f"{where} no longer has {origin.version}, so mcpd cannot tell whether {version} takes"
        note(f"{name}: {gone} {shlex.join(own or ()) or 'its arguments'}: upgraded without this check")
    both = {key: {**offer.entry.get(key, {}), **made.get(key, {})} for key in ("env", "headers")}
    fresh = asking(attrs.evolve(offer, entry={**both, "args": args}))
    made |= filled(fresh, _answered_again(options, fresh, variables))
    lacks = {*_words(fixed)} - {*_words(made), ""}
    if own is None and former is not None:  # Nothing tells the place of a new one.
        more = [each for each in offer.entry.get("args", ()) if each not in former]
        lacks |= {each.name for each in missing(asking(attrs.evolve(offer, entry={"args": more})), {})}
    if lacks:
        again = f"`mcpd add {name} registry:{origin.name} --replace` asks for all"
        raise CommandFailed(f"{origin.name} {version} also needs {', '.join(sorted(lacks))}: {again}")
    if address := web_address(json.dumps({each: document.get(each) for each in ("repository", "websiteUrl")})):
        note(f"changes: {address}")
    made["origin"] = attrs.asdict(offer.origin, filter=lambda _, value: value is not None)
    return {key: value for key, value in made.items() if value and value != entry.get(key)}


def _former(registries: Any, origin: EntryOrigin) -> Any:
    """The arguments that an offer had in the entry's version; None if no source has that version any more."""
    with suppress(SourceTrouble):
        if origin.bundle:
            return _bundles.arguments(origin, os.environ)
        where, document = registries.server(origin.name, origin.version)
        return _registries.offer_of(document, where, os.environ, offline=True).entry.get("args", [])
    return None


def _placed(
    offer: ServerOffer, former: Sequence[Any] | None, held: Sequence[str]
) -> tuple[Sequence[Any], list[str] | None]:
    """An offer's arguments, with an entry's words (`held`) for those in `former`, and the entry's own words.

    An own word stays before the same argument. Without `former`, offered arguments that the entry has replace
    it; if own words look like arguments, returns `held` and None.
    """
    offered = [_parts(each) for each in offer.entry.get("args", [])]
    several = {f"${{input:{each.name}}}" for each in offer.inputs if each.multiple}
    known, own, last, whole = dict[str, list[list[str]]](), list[str](), list[str](), _joined(held)
    left, options = whole, {word.partition("=")[0] for word in held}
    for parts in filter(None, offered if former is None else map(_parts, former)):
        its = _joined(map(_pattern, parts)) + r"(?=\0|\Z)"
        if former is None and INPUT.match(parts[0]):
            return held, None
        if former is None and not re.search(its, whole):
            continue
        found = re.match(rf"((?:\0[^\0]*)*?)((?:{its}){'+' * (parts[-1] in several)})", left)
        if not found and (several or parts[0].partition("=")[0] in options):
            return held, None
        before, words = (each.split("\0")[1:] for each in (found.groups() if found else ("", "")))
        own += before
        last += [] if parts in offered else before
        known.setdefault(str(parts), []).append([*(before if parts in offered else ()), *words])
        left = left[found.end() :] if found else left
    args = [known[key].pop(0) if known.get(key := str(parts)) else [parts] for parts in offered]
    return [*chain.from_iterable(args), *last, *left.split("\0")[1:]], own + left.split("\0")[1:]


def _parts(group: Any) -> Sequence[str]:
    return [group] if isinstance(group, str) else group


def _pattern(part: str) -> str:
    first, *others = INPUT.split(part)[::2]
    # Only the last one: a match of many takes minutes, and a registry chooses them.
    return "[^\0]*".join(map(re.escape, [first, *others[-1:]]))


def _joined(words: Iterable[str]) -> str:
    return "".join(f"\0{word}" for word in words)


def _answered_again(options: argparse.Namespace, fresh: ServerOffer, variables: Variables) -> dict[str, str]:
    needed = attrs.evolve(fresh, inputs=tuple(missing(fresh, {})))
    for each in needed.inputs:
        note(f"{options.server} now needs {each.name}{each.description and f': {each.description}'}")
    try:
        return _answered(options, needed, variables, ["upgrade", options.server])
    except UsageError as error:
        raise CommandFailed(f"{error}. Nothing was changed") from None


def _words(entry: Mapping[str, Any]) -> list[str]:
    return [entry.get("command") or entry.get("url", ""), *entry.get("args", ())]


def registered(name: str) -> dict[str, Any]:
    """The entry of a registry's server, with `${input:NAME}` for each input; empty without such a server."""
    try:
        offer = _guarded(lookup(name, config_file(os.environ), None, offline=False, fetches=False))
    except (McpdError, CommandFailed) as error:
        note(f"{name}: {error}")
        return {}
    # By the name alone, a document would choose among the user's variables.
    return filled(offer, {each.name: f"${{input:mcp-{offer.name}-{each.name}}}" for each in missing(offer, {})})


def accepted(options: argparse.Namespace, offer: ServerOffer, variables: Variables) -> ServerOffer:
    """Show an offer, ask the user for its inputs and whether to add it, and return it with its final entry.

    Raises UsageError if an input is missing and there is no terminal, and CommandFailed if the user does not
    agree or the server cannot be sandboxed. KeyboardInterrupt: the user ends a question.
    """
    offer = _guarded(offer)
    print(*map(visible, described(offer)), sep="\n", file=sys.stderr, flush=True)
    words = ["add", *options.words, "--yes", *(["--version", v] if (v := options.version) else [])]
    answers = _answered(options, offer, variables, words)
    if not (options.dry_run or agreed(f"Add it as {offer.name}?", yes=options.yes)):
        raise CommandFailed("you did not agree: nothing was changed")
    entry = filled(offer, answers) | ({"description": options.description} if options.description else {})
    return attrs.evolve(offer, entry=entry, notes=())


def _guarded(offer: ServerOffer) -> ServerOffer:
    """Complete an offer: its origin, and the trust and sandbox for servers that come from outside."""
    entry, shown = {**offer.entry, "trust": offer.entry.get("trust", "none")}, _shown(offer)
    server = Server(name="", command=shown.get("command"), args=shown.get("args", ()))
    # A bundle could have a program of an engine's name, or give its container all files: for containers, the
    # configuration takes no sandbox but "off".
    if server.command and (offer.origin.bundle or not runs_container(server)):
        entry.setdefault("sandbox", "home")
        if entry["sandbox"] != "off" and (problem := launch.trial(os.environ)) is not None:
            raise CommandFailed(f"{without_sandbox(problem)}. Or write `--sandbox off`. Nothing was changed")
    entry["origin"] = attrs.asdict(offer.origin, filter=lambda _, value: value is not None)
    # A variable of the command line may stand in place of the one that an input was for.
    return asking(attrs.evolve(offer, entry=entry))


def _shown(offer: ServerOffer) -> dict[str, Any]:
    return filled(offer, {each.name: f"<{each.name}>" for each in offer.inputs})


def _values(offer: ServerOffer, key: str) -> Iterator[tuple[str, str]]:
    """The variables or headers of an offer to show; credentials written as plain text are hidden."""
    for name, value in _shown(offer).get(key, {}).items():
        is_text = names_credential(name) and "${" not in offer.entry[key][name]
        yield name, HIDDEN if is_text else value


def described(offer: ServerOffer) -> Iterator[str]:
    """Lines with the facts that a user needs before agreeing to an offer."""
    entry, origin = _shown(offer), offer.origin
    yield f"{origin.name} {origin.version}" + (f", from {origin.registry}" if origin.registry else "")
    yield from (f"  {offer.entry[key]}" for key in ("title", "description") if offer.entry.get(key))
    settings = [f"{key}={value}" for key, value in _values(offer, "env") if value != f"<{key}>"]
    words = shlex.join([*settings, entry.get("command", ""), *entry.get("args", ())])
    yield f"  connects to {entry['url']}" if "url" in entry else f"  runs {words}"
    yield from (f"  with the header {key}: {value}" for key, value in _values(offer, "headers"))
    yield from [f"  hash {origin.hash}"] * bool(origin.hash)
    yield from (f"  sandbox {each}{_HOME * (each == 'home')}" for each in [entry.get("sandbox")] if each)
    for each in offer.inputs:
        kind = f"{' (secret)' if each.secret else ''}{_usual(each)}"
        yield f"  asks for {each.name}{kind}{each.description and f': {each.description}'}"
    yield from (f"  note: {prose(each)}" for each in offer.notes)


def _answered(
    options: argparse.Namespace, offer: ServerOffer, variables: Variables, words: Sequence[str]
) -> dict[str, str]:
    """The answers to an offer's inputs, with references to secrets; else UsageError, which names a command."""
    answers = {name: value for values in given(options).values() for name, value in values.items()}
    asked = missing(offer, answers)
    if has_terminal():
        more = [each for each in offer.inputs if each.name not in answers and each not in asked]
        more = [each for each in more if each.required or (each.default is None and each.description)]
        asked += [] if options.yes else more[:MOST_MORE]
        answers |= {each.name: _answer(each) for each in asked}
    elif asked:
        given_too = [f"--env={name}=..." for name in {**answers, **{each.name: "" for each in asked}}]
        why = ", ".join(f"{each.name} {each.refusal(answers.get(each.name, ''))}" for each in asked)
        typed_too = typed_as(options, *words, *given_too)
        raise UsageError(visible(f"{why}; without a terminal, write {typed_too}"))
    for each in offer.inputs:
        if each.secret and "${" not in (value := answers.get(each.name, "")):
            answers[each.name] = value and variables.keep(offer.name, each.name.upper(), value)
    return answers


def _answer(wanted: Input) -> str:
    choices = f" ({', '.join(wanted.choices)})" if wanted.choices else ""
    prompt = f"{wanted.name}{choices}{_usual(wanted)}: "
    while problem := wanted.refusal(answer := typed(prompt, hidden=wanted.secret).strip()):
        print(visible(f"{wanted.name} {problem}"), file=sys.stderr)
    return answer


def _usual(wanted: Input) -> str:
    if wanted.default:
        return " [its default]" if wanted.secret else f" [{wanted.default}]"
    return "" if wanted.required else " [optional]"
