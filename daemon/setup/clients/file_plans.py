"""What becomes of a client's files when mcpd is put into them, or taken out again. Nothing is written here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.documents.files import DocumentError
from daemon.documents.formats import read_document
from daemon.setup.clients.installing import put_in, without_own
from daemon.setup.clients.programs import OWN_NAME
from daemon.setup.clients.records import Record
from daemon.setup.clients.uninstalling import take_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from daemon.documents.files import FoundFile
    from daemon.documents.formats import Format
    from daemon.setup.clients.installing import Installation
    from daemon.setup.clients.programs import ClientPlace, ClientProgram, Known, Machine
    from daemon.setup.clients.records import Records


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
