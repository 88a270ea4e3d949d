"""Plans and makes changes of clients' files: the installation and removal of mcpd."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

import attrs

from daemon.config.config_model import Server
from daemon.config.redaction import names_credential, secrets_of
from daemon.documents import files
from daemon.documents.edited import EditedText, value_at
from daemon.documents.files import DocumentError, FoundFile, unified_diff
from daemon.documents.formats import Format, read_document
from daemon.errors import ConfigError
from daemon.safety.escape import visible
from daemon.safety.redact import Redactor
from daemon.setup.clients.installing import (
    Installation,
    NamedEntry,
    Record,
    Records,
    Rewritten,
    command_line,
    is_own,
    put_in,
    without_own,
)
from daemon.setup.clients.programs import OWN_NAME, ClientPlace, ClientProgram, Known, Machine

ATTEMPTS = 5
"""Attempts while the client writes the file: some clients write at every turn of a conversation."""


def preview(plans: Sequence[FilePlan]) -> list[FileChange]:
    """The changes that `apply` would make now. Raises DocumentError and ConfigError."""
    return [plan.change(files.look(plan.path)) for plan in plans]


def apply(plans: Sequence[FilePlan], client: str, records: Records) -> list[FileChange]:
    """Change a client's files, and record how to undo that. After an error, undo it.

    Raises DocumentError if a file cannot be read or changed, and ConfigError if a file is broken.
    """
    done: list[FileChange] = []
    with records.locked(), ExitStack() as undoing:
        for plan in plans:
            change = _change_file(plan, client, records)
            undoing.callback(_change_back, change, client, records)
            done.append(change)
        undoing.pop_all()
    return done


def _change_file(plan: FilePlan, client: str, records: Records) -> FileChange:
    for left in reversed(range(ATTEMPTS)):
        change = plan.change(files.look(plan.path))
        # Before the file: whatever ends us in between, there is a way back.
        if change.record is not None:
            records.keep(client, change.record)
        try:
            _write(change)
        except DocumentError:
            records.restore(client, plan.path, change.former)
            if left and files.look(plan.path).identity != change.found.identity:
                continue
            raise
        if change.record is None and change.former is not None:
            records.forget(client, plan.path, leave_backup=not change.new.exact)
        return change
    raise AssertionError("the last attempt returns or raises")


def _change_back(change: FileChange, client: str, records: Records) -> None:
    now = files.look(change.found.path)
    # What somebody has written since stays; the record then says what was done.
    if now.text() == change.after:
        _write(attrs.evolve(change, found=now, new=Rewritten(text=change.before)))
        records.restore(client, change.found.path, change.former)


def _write(change: FileChange) -> None:
    if not change.writes:
        return
    if change.after is not None:
        files.replace(change.found, change.after.encode())
    elif files.look(change.found.path).identity == change.found.identity:
        try:
            change.found.target.unlink()
        except OSError as error:
            raise DocumentError(f"{change.found.path} cannot be removed: {error.strerror}") from None
    else:
        raise DocumentError(f"{change.found.path} has just been written by somebody else: try again")


MOST_LINES = 20_000
"""Lines of the longest file that is merged, in quadratic time; longer files are databases."""


class _Hunk(NamedTuple):
    """A range of lines of the common text, and the lines by which one side replaced them."""

    first: int
    last: int
    lines: list[str]


def merged_lines(common: str, one: str, other: str) -> str | None:
    """Merge two changed texts by lines; None on a conflict. Adjacent changes conflict: they have no order."""
    lines = common.splitlines(keepends=True)
    sides = [text.splitlines(keepends=True) for text in (one, other)]
    if max(map(len, (lines, *sides))) > MOST_LINES:
        return None
    hunks = sorted(hunk for side in sides for hunk in _hunks(lines, side))
    merged, at = list[str](), 0
    for number, hunk in enumerate(hunks):
        # Hunks of one side never touch: some line between them has stayed.
        if number and hunk.first <= hunks[number - 1].last:
            return None
        merged += [*lines[at : hunk.first], *hunk.lines]
        at = hunk.last
    return "".join([*merged, *lines[at:]])


def _hunks(lines: list[str], changed: list[str]) -> list[_Hunk]:
    matcher = SequenceMatcher(None, lines, changed, autojunk=False)
    return [
        _Hunk(first, last, changed[start:end])
        for tag, first, last, start, end in matcher.get_opcodes()
        if tag != "equal"
    ]


EMPTY = frozenset({"", "{}"})
"""The rest of a file that only mcpd has written, with white space removed."""


def take_out(record: Record, current: str) -> Rewritten:
    """Remove mcpd from a file's current text. Raises ConfigError and DocumentError."""
    if current in {record.installed, record.original}:
        names = _names(record) if current == record.installed else ()
        return Rewritten(text=record.original, exact=True, back=names)
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
    return Rewritten(text=None if is_gone else text, back=tuple(back), kept=tuple(kept))


def _names(record: Record) -> tuple[str, ...]:
    if record.original is None:
        return ()
    value = read_document(record.original, record.form, source=str(record.path)).value()
    return tuple(member.name for member in record.members if member.entry(value) is not None)


def _write_back(document: EditedText, member: NamedEntry, before: object, then: object) -> None:
    """Restore only the keys that mcpd has rewritten: others may have changed since."""
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


def _drop_empty(document: EditedText, member: NamedEntry, original: object) -> None:
    for end in range(len(member.trail), 0, -1):
        trail = member.trail[:end]
        if value_at(document.value(), trail) not in ({}, []) or value_at(original, trail) is not None:
            return
        document.remove(trail)


def _as_written(record: Record, current: str, document: EditedText) -> str:
    """The text with the original's lines where both mean the same: the original has comments and order."""
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
    for trail in {member.trail for member in record.members if member.listed}:
        servers = value_at(value, trail)
        if isinstance(servers, list):
            servers.sort(key=repr)
    return value


CONTEXT = 2
"""Lines of context in a diff: they identify the entry without showing others."""

_GIVEN = ("env", "environment", "envs", "headers", "http_headers")
"""Keys of clients' entries that hold values by name."""


def difference(path: Path, before: str | None, after: str | None, form: Format) -> str:
    """The changed lines, with control characters visible and without secrets; empty if nothing changes."""
    redact = Redactor(secret for text in (before, after) if text for secret in _secrets(_value(text, form)))
    shown = unified_diff(path, before, after, context=CONTEXT)
    return visible(redact(shown, len(shown)), lines=True)


def _value(text: str, form: Format) -> object:
    try:
        return read_document(text, form, source="").value()
    except ConfigError:
        return None


def _secrets(value: object) -> Iterator[str]:
    """Values to hide: those of servers, and those whose names suggest secrets."""
    if isinstance(value, dict):
        yield from secrets_of(_as_server(value))[0]
        for name, item in value.items():
            # Codex names variables that hold tokens.
            if isinstance(item, str) and names_credential(str(name)) and not name.endswith("_env_var"):
                yield item
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        yield from _secrets(item)


def _as_server(entry: dict[str, Any]) -> Server:
    urls = (entry.get(name) for name in ("url", "httpUrl", "serverUrl", "uri"))
    words = (*command_line(entry), *(url for url in urls if isinstance(url, str)))
    members = (held for key in _GIVEN if isinstance(held := entry.get(key), dict))
    given = {str(name): str(item) for held in members for name, item in held.items()}
    return Server(name="", args=words, headers=given, env=given)


SCOPES = {"user": frozenset({"user", "local"}), "project": frozenset({"project", "workspace"})}
"""Scopes of clients by who shares the file: only the user, or all who work on the project."""


@attrs.frozen(kw_only=True)
class FileChange:
    """A client's file before and after."""

    found: FoundFile
    form: Format
    new: Rewritten
    record: Record | None = None
    """The record to store; None deletes it."""
    former: Record | None = None

    @property
    def before(self) -> str | None:
        """The present content; None if there is no file."""
        return self.found.text()

    @property
    def after(self) -> str | None:
        """The new content; None deletes the file."""
        return self.new.text

    @property
    def writes(self) -> bool:
        """Whether the file changes."""
        return self.before != self.after


@attrs.frozen
class FilePlan:
    """A change of a file, computed from its present content."""

    path: Path
    change: Callable[[FoundFile], FileChange]
    """Returns the change. Raises ConfigError or DocumentError for a broken file."""


def install_plans(
    program: ClientProgram, machine: Machine, wanted: Installation, scope: str, known: Known, records: Records
) -> list[FilePlan]:
    """Plan how to install mcpd into a client. Raises DocumentError if it has no file for this scope."""
    places = [place for place in program.places(machine) if place.scope in SCOPES[scope]]
    if not places:
        raise DocumentError(
            f"there is no file for the scope '{scope}' at {machine.directory}: leave out --scope, or go to a"
            " project's directory if this client has project files"
        )
    into = places[0]

    def put_into(found: FoundFile) -> FileChange:
        here = [place for place in places if place.path == found.path]
        current, former = found.text(), records.find(program.name, found.path)
        base = None if current is None else without_mcpd(current, here, former)
        own_place = into if found.path == into.path else None
        put = put_in(base or "", [*here, *_former_places(former, here)], own_place, wanted, known)
        after = put.text if put.members else base
        if current is not None and after is not None and _says(current, here[0]) == _says(after, here[0]):
            after = current
        record = None
        if put.members and after is not None:
            form, members = here[0].form, put.members
            record = Record(path=found.path, form=form, members=members, original=base, installed=after)
        new = attrs.evolve(put, text=after)
        return FileChange(found=found, form=here[0].form, new=new, record=record, former=former)

    others = (place.path for place in places if place.path.exists())
    return [FilePlan(path, put_into) for path in dict.fromkeys([into.path, *others])]


def uninstall_plans(program: ClientProgram, machine: Machine, records: Records) -> list[FilePlan]:
    """Plan how to remove mcpd from recorded files, and from all other files that have it."""
    places = program.places(machine)
    paths = [place.path for place in places] + [record.path for record in records.of(program.name)]

    def take_out_of(found: FoundFile) -> FileChange:
        here = [place for place in places if place.path == found.path]
        current, former = found.text(), records.find(program.name, found.path)
        form = here[0].form if former is None else former.form
        # One that does not even name mcpd is not read: it may be broken, and does not concern mcpd.
        if current is None or (former is None and OWN_NAME not in current):
            new = Rewritten(text=current)
        elif former is None:
            new = Rewritten(text=without_own(current, here))
        else:
            new = take_out(former, current)
        return FileChange(found=found, form=form, new=new, former=former)

    return [FilePlan(path, take_out_of) for path in dict.fromkeys(paths)]


def without_mcpd(current: str, places: Sequence[ClientPlace], record: Record | None) -> str | None:
    """A file's text without mcpd; None deletes the file. Raises ConfigError, DocumentError."""
    return without_own(current, places) if record is None else take_out(record, current).text


def _former_places(record: Record | None, places: Sequence[ClientPlace]) -> list[ClientPlace]:
    """Places in other directories whose servers mcpd has taken."""
    trails = dict.fromkeys(member.trail for member in record.members) if record else {}
    return [attrs.evolve(places[0], trail=trail) for trail in trails.keys() - {place.trail for place in places}]


def _says(text: str, place: ClientPlace) -> object:
    return read_document(text, place.form, source=str(place.path)).value()
