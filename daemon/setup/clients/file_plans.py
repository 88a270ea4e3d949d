"""What becomes of a client's files when mcpd is put into them, or taken out again. Nothing is written here."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from daemon.config.config_model import Server
from daemon.config.redaction import names_credential, secrets_of
from daemon.documents import files
from daemon.documents.files import DocumentError, unified_diff
from daemon.documents.formats import Format, read_document
from daemon.errors import ConfigError
from daemon.safety.escape import visible
from daemon.safety.redact import Redactor
from daemon.setup.clients.installing import Record, at, command_line, is_own, put_in, without_own
from daemon.setup.clients.programs import OWN_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from daemon.documents.edited import EditedText
    from daemon.documents.files import FoundFile
    from daemon.setup.clients.installing import Installation, NamedEntry, Records
    from daemon.setup.clients.programs import ClientPlace, ClientProgram, Known, Machine


ATTEMPTS = 5
"""How often a file is read and changed anew because its client has written it in between: some do at every turn
of a conversation, none all the time."""


def preview(plans: Sequence[FilePlan]) -> list[FileChange]:
    """What would change now.

    Raises:
        DocumentError: a file cannot be read, or mcpd cannot be put there.
        ConfigError: a file is broken.
    """
    return [plan.change(files.look(plan.path)) for plan in plans]


def apply(plans: Sequence[FilePlan], client: str, records: Records) -> list[FileChange]:
    """Change a client's files, and keep what is needed to change them back.

    Raises:
        DocumentError: a file cannot be read or changed; what had been changed before is changed back.
        ConfigError: a file is broken; likewise.
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
            records.forget(client, plan.path, leave_backup=not change.exact)
        return change
    raise AssertionError("the last attempt returns or raises")


def _change_back(change: FileChange, client: str, records: Records) -> None:
    now = files.look(change.found.path)
    # What somebody has written since stays; the record then says what was done.
    if now.text() == change.after:
        _write(attrs.evolve(change, found=now, after=change.before))
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
"""Lines of a text that are compared: the comparison takes time with their square, and no client's file has more
unless it is a database."""


class _Hunk(NamedTuple):
    """Lines of the common text that one side has replaced."""

    first: int
    last: int
    lines: list[str]


def merged_lines(common: str, one: str, other: str) -> str | None:
    """`common` with what both texts have changed in it; None if they have changed the same place.

    Changes that touch are changes of the same place: which of them comes first nobody knows.
    """
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


def _write_back(document: EditedText, member: NamedEntry, before: object, then: object) -> None:
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


def _drop_empty(document: EditedText, member: NamedEntry, original: object) -> None:
    """Remove the objects that were made for an entry, once nothing is in them."""
    for end in range(len(member.trail), 0, -1):
        trail = member.trail[:end]
        if at(document.value(), trail) not in ({}, []) or at(original, trail) is not None:
            return
        document.remove(trail)


def _as_written(record: Record, current: str, document: EditedText) -> str:
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


CONTEXT = 2
"""Lines around a change: enough to see whose entry it is; more would show what has not changed."""

_GIVEN = ("env", "environment", "envs", "headers", "http_headers")
"""Members of a server's entry that have values by name, in any client."""


def difference(path: Path, before: str | None, after: str | None, form: Format) -> str:
    """The lines that change, with control characters made visible; empty if none do.

    Args:
        path: the file.
        before: what it holds; None if there is none.
        after: what it is to hold; None if there is to be none.
        form: its format.
    """
    redact = Redactor(secret for text in (before, after) if text for secret in _secrets(_value(text, form)))
    shown = unified_diff(path, before, after, context=CONTEXT)
    return visible(redact(shown, len(shown)), lines=True)


def _value(text: str, form: Format) -> object:
    try:
        return read_document(text, form, source="").value()
    except ConfigError:
        return None


def _secrets(value: object) -> Iterator[str]:
    """The values that must not be shown: of servers, and of whatever else has a telling name."""
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
    """Any object as if it were a server's entry, with what such an entry is given."""
    urls = (entry.get(name) for name in ("url", "httpUrl", "serverUrl", "uri"))
    words = (*command_line(entry), *(url for url in urls if isinstance(url, str)))
    members = (held for key in _GIVEN if isinstance(held := entry.get(key), dict))
    given = {str(name): str(item) for held in members for name, item in held.items()}
    return Server(name="", args=words, headers=given, env=given)


SCOPES = {"user": frozenset({"user", "local"}), "project": frozenset({"project", "workspace"})}
"""The scopes of places, by who else has the file: nobody, or everybody who works on the project."""


@attrs.frozen(kw_only=True)
class FileChange:
    """One file of a client's, as it is and as it is to be."""

    found: FoundFile
    form: Format
    """The file's format."""
    after: str | None = attrs.field(repr=False)
    """None: there is to be no file."""
    record: Record | None
    """What is to be kept of it; None: nothing any more."""
    former: Record | None = None
    """What has been kept of it."""
    taken: tuple[str, ...] = ()
    """Servers that the client reaches through mcpd."""
    left: tuple[str, ...] = ()
    """Servers that stay because mcpd does not have them."""
    back: tuple[str, ...] = ()
    """Servers that are the client's own again."""
    kept: tuple[str, ...] = ()
    """Servers that are not put back because the file has others of their names now."""
    exact: bool = False
    """Whether the file becomes byte for byte what it was before mcpd."""

    @property
    def before(self) -> str | None:
        """What the file holds; None if there is none."""
        return self.found.text()

    @property
    def writes(self) -> bool:
        """Whether the file is not yet as it is to be."""
        return self.before != self.after


@attrs.frozen
class FilePlan:
    """What is to become of a file, however it is found."""

    path: Path
    change: Callable[[FoundFile], FileChange]
    """Raises ConfigError, DocumentError: the file is broken, or mcpd cannot be put there."""


def install_plans(
    program: ClientProgram, machine: Machine, wanted: Installation, scope: str, known: Known, records: Records
) -> list[FilePlan]:
    """How mcpd is put into a client.

    Args:
        program: the client.
        machine: where it looks for its files.
        wanted: how mcpd is to be put in.
        scope: one of `SCOPES`.
        known: which of the client's servers mcpd has.
        records: what is kept of clients' files.

    Raises:
        DocumentError: the client has no file for this scope.
    """
    places = [place for place in program.places(machine) if place.scope in SCOPES[scope]]
    if not places:
        raise DocumentError(
            f"there is no file for the scope '{scope}' for {machine.directory}: go to a project's directory, if"
            " this client has files of projects, or leave out --scope"
        )
    into = places[0]

    def put_into(path: Path) -> FilePlan:
        here = [place for place in places if place.path == path]
        own_place = into if path == into.path else None

        def change(found: FoundFile) -> FileChange:
            return _put_in(found, here, own_place, wanted, known, records.find(program.name, path))

        return FilePlan(path, change)

    others = (place.path for place in places if place.path.exists())
    return [put_into(path) for path in dict.fromkeys([into.path, *others])]


def uninstall_plans(program: ClientProgram, machine: Machine, records: Records) -> list[FilePlan]:
    """How mcpd is taken out of a client: of every file that is recorded, and of all that have it nonetheless.

    Args:
        program: the client.
        machine: where it looks for its files.
        records: what is kept of clients' files.
    """
    places = program.places(machine)
    paths = [place.path for place in places] + [record.path for record in records.of(program.name)]

    def take_out_of(path: Path) -> FilePlan:
        here = [place for place in places if place.path == path]
        return FilePlan(path, lambda found: _take_out(found, here, records.find(program.name, path)))

    return [take_out_of(path) for path in dict.fromkeys(paths)]


def _put_in(
    found: FoundFile,
    places: list[ClientPlace],
    into: ClientPlace | None,
    wanted: Installation,
    known: Known,
    former: Record | None,
) -> FileChange:
    current = found.text()
    base = None if current is None else without_mcpd(current, places, former)
    form = places[0].form
    put = put_in(base or "", [*places, *_former_places(former, places)], into, wanted, known)
    after = put.text if put.members else base
    if current is not None and after is not None and _says(current, places[0]) == _says(after, places[0]):
        after = current
    record = None
    if put.members and after is not None:
        record = Record(path=found.path, form=form, members=put.members, original=base, installed=after)
    change = FileChange(found=found, form=form, after=after, record=record, former=former)
    return attrs.evolve(change, taken=put.taken, left=put.left)


def without_mcpd(current: str, places: Sequence[ClientPlace], record: Record | None) -> str | None:
    """What a file would hold without mcpd; None: there would be none.

    Raises:
        ConfigError, DocumentError: it is broken.
    """
    return without_own(current, places) if record is None else take_out(record, current).text


def _former_places(record: Record | None, places: Sequence[ClientPlace]) -> list[ClientPlace]:
    """Where servers were taken out before: of another directory, where a client keeps them by directory."""
    trails = dict.fromkeys(member.trail for member in record.members) if record else {}
    return [attrs.evolve(places[0], trail=trail) for trail in trails.keys() - {place.trail for place in places}]


def _take_out(found: FoundFile, places: list[ClientPlace], former: Record | None) -> FileChange:
    current = found.text()
    form = former.form if former is not None else places[0].form
    nothing = FileChange(found=found, form=form, after=current, record=None, former=former)
    if current is None:
        return nothing
    if former is None:
        # One that does not even name mcpd is not read: it may be broken, and is none of our business.
        return attrs.evolve(nothing, after=without_own(current, places)) if OWN_NAME in current else nothing
    out = take_out(former, current)
    return attrs.evolve(nothing, after=out.text, back=out.back, kept=out.kept, exact=out.exact)


def _says(text: str, place: ClientPlace) -> object:
    return read_document(text, place.form, source=str(place.path)).value()
