"""`mcpd audit`: shows and verifies the audit's records. It reads files, and needs no daemon."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.audit.audit_files import chains, query, read
from daemon.audit.inspection import event, heads_in, journal, verify, words
from daemon.audit.record import ChainHead
from daemon.cli.command import UsageError, lines
from daemon.cli.control import EX_FAULT, DaemonUnreachable, Message, RemoteFault, ask_with, note
from daemon.cli.following import EventLines
from daemon.host.paths import state_dir
from daemon.kit.wording import closest
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse

SHOWN = 50
"""Records shown without --limit, --since and --json: a screen or two."""

MEANT = 5000
"""Newest records that mcpd searches for a similar server name, in some 40 ms."""

MOST = 100_000
"""The highest --limit: mcpd holds the records in memory, 100 MB."""

STYLES = {"refused": "red", "declined": "red", "lost": "red", "agreed": "green", "approved": "green"}


class AuditLines(EventLines):
    """Prints audit records, one line each."""

    is_ocsf = False

    def put(self, entry: Any) -> None:
        """Print a record; for programs as the bytes in the file, since the next record holds their digest."""
        is_whole = self._as_json and not self.is_ocsf and entry["record"] is not None
        if is_whole and not sys.stdout.isatty():
            sys.stdout.write(entry["line"].decode())
        else:
            super().put(entry)

    def as_object(self, entry: Any) -> Any:
        """The record as in the file, or as an event of OCSF."""
        if entry["record"] is None:
            return {"malformed": entry["line"].decode(errors="replace"), "place": entry["place"]}
        return event(entry["record"]) if self.is_ocsf else json.loads(entry["line"])

    def line(self, entry: Any) -> str:
        """A record's time, decision, subject, actor, reason and outcome."""
        if (record := entry["record"]) is None:
            return visible(f"{entry['place']}: not a record of the audit: {entry['line'][:200]!r}")
        decision = self.painted(f"{visible(record.decision):<10}", STYLES.get(record.decision, ""))
        return f"{self.clock(entry['at'])}  {decision}  {visible('  '.join(filter(None, words(record))))}"


def audit(options: argparse.Namespace) -> int:
    """Show records, or verify their chains."""
    heads = [each for word in options.head for each in head(word)]
    where: Message = {"directory": (options.state_dir or state_dir(os.environ)) / "audit", "heads": []}
    problem = "not asked"
    if not options.state_dir:
        with suppress(DaemonUnreachable, RemoteFault):
            where, problem = ask_with(options, "audit-heads", {}), ""
    directory, stored = Path(where["directory"]), [ChainHead(**each) for each in where["heads"]]
    if problem:
        stored, problem = _stored(directory.parent / "state.db")
    try:
        if options.server == "verify":
            return _verify(options, directory, stored, problem, heads)
        return _show(options, directory)
    except OSError as error:
        why = error.strerror or error
        note(f"the audit below {directory} cannot be read: {why}. Run this as its owner, or as root.")
        return EX_FAULT


def _stored(store: Path) -> tuple[list[ChainHead], str]:
    """The chain heads in a SQLite store, read without its daemon; else the reason why there are none."""
    if not store.is_file():
        return [], f"no daemon answers, and there is no {store}"
    try:
        with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            # Asked here, since the store's own reader takes 70 ms to load.
            rows = opened.execute("SELECT chain, seq, digest FROM audit_heads").fetchall()
    except sqlite3.Error as error:
        return [], f"{store}: {error}"
    return [ChainHead(chain=chain, seq=seq, digest=found) for chain, seq, found in rows], ""


def _show(options: argparse.Namespace, directory: Path) -> int:
    options.json = options.json or options.format is not None
    server, _, tool = (options.server or "").partition("/")
    since, until = options.since or 0.0, inf if options.until is None else options.until
    wanted = query(server, tool, options.session or "", options.decision, since, until)
    limit = options.limit or (None if options.json or options.since else SHOWN)
    found = read(directory, wanted)
    if limit is not None:
        found = reversed([*islice(read(directory, wanted, newest_first=True), min(limit, MOST))])
    printed, entry = AuditLines(options), None
    printed.is_ocsf = options.format == "ocsf"
    for entry in found:
        printed.put(entry._asdict())
    if not chains(directory):
        note(f"there is no audit in {directory}.")
        return EX_FAULT
    if entry is None and not options.json:
        newest = islice(read(directory, query("", "", "", [], 0.0, inf), newest_first=True), MEANT)
        near = closest(server, {each.record.server for each in newest if each.record}, 1)
        meant = f" Did you mean {near[0]!r}?" if near and near[0] != server else ""
        note(f"no record in {directory} matches.{meant}")
    return 0


def _verify(
    options: argparse.Namespace, directory: Path, stored: list[ChainHead], why: str, given: list[ChainHead]
) -> int:
    noted, silence = journal(directory.stat().st_uid if directory.exists() else os.getuid())
    elsewhere = {"the store": why or len(stored), "the journal": silence or len(noted)}
    checked, others = verify(directory, [*stored, *noted, *given])
    intact = bool(checked) and not any(each.faults for each in checked) and not {*stored, *given} & {*others}
    compared = {**elsewhere, "--head": len(given)}
    report = {"intact": intact, "chains": checked, "notHere": others, "compared": compared}
    report |= {"directory": str(directory)}
    print(document(msgspec.to_builtins(report, enc_hook=str)) if options.json else lines(*_words(report)))
    return 0 if intact else EX_FAULT


def _words(report: Message) -> Iterator[str]:
    for each in report["chains"]:
        yield f"{each.directory}: records {each.first:,} to {each.last:,}:"
        yield from each.faults or ["intact"]
        yield from [f"{each.torn}: a cut line: its daemon is writing, or was killed"] if each.torn else ()
        known = f"up to record {each.vouched:,}" if each.vouched else "none: missing last records stay unseen"
        yield f"Confirmed elsewhere: {known}. To compare later: --head {each.last}:{each.digest}"
    for each in {each.chain: each for each in report["notHere"]}.values():
        yield f"Missing: chain {each.chain or '?'} with record {each.seq:,}: another daemon's, or removed."
    sources = "; ".join(f"{source}: {heads}" for source, heads in report["compared"].items())
    yield (
        f"Compared with heads of {sources}."
        if report["chains"]
        else f"There is no audit in {report['directory']}."
    )


def head(word: str) -> list[ChainHead]:
    """Parse a word of the command line: a chain's head, or a file with heads. Raises UsageError."""
    if found := heads_in(Path(word).read_text(errors="replace") if Path(word).is_file() else word):
        return found
    raise UsageError(f"{word!r} is neither SEQ:DIGEST (64 hexadecimal digits) nor a file of heads")
