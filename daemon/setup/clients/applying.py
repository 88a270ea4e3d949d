"""Changing a client's files as planned: all or none, and nothing that others write meanwhile is lost."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from daemon.documents import files
from daemon.documents.files import DocumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.setup.clients.file_plans import FileChange, FilePlan
    from daemon.setup.clients.records import Records

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
