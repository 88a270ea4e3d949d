"""mcpd taken out of a client's file again: byte for byte where nobody else has changed it, else merged."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import attrs

from daemon.documents.formats import read_document
from daemon.errors import ConfigError
from daemon.setup.clients.line_merge import merged_lines
from daemon.setup.clients.members import at
from daemon.setup.clients.own_entry import is_own

if TYPE_CHECKING:
    from daemon.documents.formats import Document
    from daemon.setup.clients.members import NamedEntry
    from daemon.setup.clients.records import Record

EMPTY = frozenset({"", "{}"})
"""What is left, without white space, of a file that held nothing but what mcpd wrote."""


@attrs.frozen(kw_only=True)
class TakenOut:
    """A file without mcpd."""

    text: str | None = attrs.field(repr=False)
    """None: there is to be no file."""
    exact: bool
    """Whether it is byte for byte what it was."""
    back: tuple[str, ...] = ()
    """Servers that are there again."""
    kept: tuple[str, ...] = ()
    """Servers of which the file has another entry now, which stays."""


def take_out(record: Record, current: str) -> TakenOut:
    """What a file is to be without mcpd.

    Args:
        record: what was done to it.
        current: what it holds now.

    Raises:
        ConfigError: it was changed since, and is not of its format.
        DocumentError: it was changed so that a server cannot be put back where it was.
    """
    if current in {record.installed, record.original}:
        names = _names(record) if current == record.installed else ()
        return TakenOut(text=record.original, exact=True, back=names)
    document = read_document(current, record.form, source=str(record.path))
    original = read_document(record.original or "", record.form, source=str(record.path)).value()
    installed = read_document(record.installed, record.form, source=str(record.path)).value()
    back, kept = list[str](), list[str]()
    for member in record.members:
        before, then, now = (member.entry(value) for value in (original, installed, document.value()))
        if before is None:
            if is_own(now):
                member.remove(document)
        elif then is None and now is None:
            assert isinstance(before, dict)
            member.put(document, before)
            back.append(member.name)
        elif then is not None and is_own(now):
            _write_back(document, member, before, then)
            back.append(member.name)
        elif now != before:
            kept.append(member.name)
        _drop_empty(document, member, original)
    text = _as_written(record, current, document)
    is_gone = record.original is None and "".join(text.split()) in EMPTY
    return TakenOut(text=None if is_gone else text, exact=False, back=tuple(back), kept=tuple(kept))


def _names(record: Record) -> tuple[str, ...]:
    if record.original is None:
        return ()
    value = read_document(record.original, record.form, source=str(record.path)).value()
    return tuple(member.name for member in record.members if member.entry(value) is not None)


def _write_back(document: Document, member: NamedEntry, before: object, then: object) -> None:
    """Undo in a rewritten entry what was rewritten: its other keys may have been changed since."""
    place = member.place(document.value())
    assert place is not None
    assert isinstance(before, dict)
    assert isinstance(then, dict)
    for key in before.keys() | then.keys():
        if before.get(key) == then.get(key):
            continue
        if key in before:
            document.put((*place, key), before[key])
        else:
            document.remove((*place, key))


def _drop_empty(document: Document, member: NamedEntry, original: object) -> None:
    """Remove the objects that were made for an entry, once nothing is in them."""
    for end in range(len(member.trail), 0, -1):
        trail = member.trail[:end]
        if at(document.value(), trail) not in ({}, []) or at(original, trail) is not None:
            return
        document.remove(trail)


def _as_written(record: Record, current: str, document: Document) -> str:
    """The document's text; the lines of the original instead where they say the same.

    They have the comments and the order that a server had which is put back.
    """
    merged = merged_lines(record.installed, current, record.original or "")
    if merged is not None:
        try:
            value = read_document(merged, record.form, source=str(record.path)).value()
        except ConfigError:
            return document.text()
        if _in_no_order(value, record) == _in_no_order(copy.deepcopy(document.value()), record):
            return merged
    return document.text()


def _in_no_order(value: object, record: Record) -> object:
    """A file's value, which may be changed, with lists of servers sorted: which comes first says nothing."""
    for trail in {member.trail for member in record.members if member.listed}:
        servers = at(value, trail)
        if isinstance(servers, list):
            servers.sort(key=repr)
    return value
