"""Keys of the configuration changed where they are written, with comments, order and layout kept.

`mcpd lazy`, `mcpd summaries`, `mcpd describe` and the console change the configuration with this and nothing
else. A profile in a file of its own (`profiles.d`) is changed there.
"""

from __future__ import annotations

from contextlib import ExitStack
from enum import Enum
from typing import TYPE_CHECKING

import attrs

from daemon.config.config_files import FOLDER
from daemon.config.jsonc import ROOT
from daemon.config.parse import MAX_CONFIG, load_changed
from daemon.documents.edited import spelt
from daemon.documents.files import DocumentError, Edit, look, undo_all, write_all
from daemon.documents.formats import Format, read_document
from daemon.errors import ConfigError, Fault
from daemon.setup.clients.installing import at
from daemon.surfaces.table import SURFACES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from daemon.documents.edited import EditedText
    from daemon.documents.files import FoundFile


class Unset(Enum):
    """In place of a value: the key is removed, so that its default counts."""

    UNSET = "unset"


UNSET = Unset.UNSET


@attrs.frozen(kw_only=True)
class Setting:
    """A key of the configuration, and the value that it is to have."""

    trail: tuple[str, ...]
    """The keys that lead to it: `("profiles", "reader", "lazy")`."""
    value: object
    """What is to stand there, in plain types; `UNSET`: nothing."""
    holder_is_its: bool = False
    """Whether the object that holds it is there for it, and is removed if nothing else is left in it."""


__all__ = ["UNSET", "KeyPlace", "Setting", "SettingsEdit", "edited"]


_IN_PROFILE = 2
"""Steps of a trail that lead to a profile: `profiles` and its name."""


@attrs.frozen
class KeyPlace:
    """Where a key of the configuration stands."""

    file: Path
    key: str
    """`$.profiles.reader.lazy`, as the file has it."""


@attrs.frozen(kw_only=True)
class SettingsEdit:
    """A configuration with some keys changed, checked as a whole."""

    places: tuple[KeyPlace, ...]
    """Where each key stands, in the order of the settings."""
    changed: tuple[Edit, ...]
    """The files that do not say so already."""

    @property
    def is_new(self) -> bool:
        """Whether anything is to be written."""
        return bool(self.changed)

    def write(self) -> None:
        """Replace each file in one step, with its mode, its owner and links that lead to it kept; all or none.

        Raises:
            DocumentError: one cannot be written, or somebody else has written it since it was read.
        """
        write_all(self.changed)

    def undo(self) -> None:
        """Give the files, which were written, their former content.

        Raises:
            DocumentError: one was changed since, or cannot be written.
        """
        undo_all(self.changed)


def edited(config: Path, settings: Sequence[Setting], environ: Mapping[str, str]) -> SettingsEdit:
    """Read a configuration and change keys of it, in memory. Blocks: it reads files.

    With a key that is removed go the objects around it that it leaves empty, unless they say something.

    Args:
        config: the configuration file.
        settings: what is to stand where.
        environ: what `${VAR}` stands for.

    Raises:
        ConfigError: the configuration is faulty, or would be.
        DocumentError: it cannot be read, or is written in a way that cannot be edited.
    """
    opened: dict[Path, tuple[FoundFile, EditedText]] = {}
    places = []
    removed: list[tuple[Path, tuple[str, ...]]] = []
    with ExitStack() as changes:
        for setting in settings:
            path, trail = _holder(config, setting.trail)
            if path not in opened:
                opened[path] = _open(path)
                # There may be hundreds of profiles, and to check a text takes as long as it is.
                changes.enter_context(opened[path][1].together())
            if (gone := _change(opened[path][1], setting, trail)) is not None:
                removed.append((path, gone))
            places.append(KeyPlace(path, spelt(trail)))
    texts = {path: document.text() for path, (_, document) in opened.items()}
    for path, text in texts.items():
        if len(text.encode()) > MAX_CONFIG:
            raise DocumentError(f"{path} would have more than {MAX_CONFIG >> 10} KiB, which mcpd does not read")
    said = load_changed(config, texts, environ, SURFACES)
    for path, trail in removed:
        for text in _without_empty(opened[path][1], trail):
            if load_changed(config, {**texts, path: text}, environ, SURFACES) != said:
                break
            texts[path] = text
    edits = (Edit(found=found, text=texts[path]) for path, (found, _) in opened.items())
    return SettingsEdit(places=tuple(places), changed=tuple(edit for edit in edits if edit.is_new))


def _change(document: EditedText, setting: Setting, trail: tuple[str, ...]) -> tuple[str, ...] | None:
    """Change a key; the outermost one that was removed for that, None if none was."""
    if setting.value is not UNSET:
        document.put(trail, setting.value)
        return None
    document.remove(trail)
    if setting.holder_is_its and at(document.value(), trail[:-1]) == {}:
        trail = trail[:-1]
        document.remove(trail)
    return trail


def _without_empty(document: EditedText, trail: tuple[str, ...]) -> Iterator[str]:
    """The text without the innermost object above a key, if that is empty; then without the next, and so on.

    An object that a person has commented stays.
    """
    for end in range(len(trail) - 1, 0, -1):
        if at(document.value(), trail[:end]) != {}:
            return
        before = document.text()
        document.remove(trail[:end])
        if any(before.count(mark) != document.text().count(mark) for mark in ("//", "/*")):
            return
        yield document.text()


def _open(path: Path) -> tuple[FoundFile, EditedText]:
    found = look(path)
    before = found.text()
    if before is None:
        raise ConfigError(
            str(path), [Fault(path=ROOT, message="there is no such file: `mcpd up` or `mcpd add` makes it")]
        )
    return found, read_document(before, Format.JSON, source=str(path))


def _holder(config: Path, trail: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """The file in which a key stands or belongs, and its trail there."""
    if len(trail) > _IN_PROFILE and trail[0] == "profiles" and "/" not in trail[1]:
        own = config.parent / FOLDER / f"{trail[1]}.json"
        if look(own).content is not None:
            return own, trail[_IN_PROFILE:]
    return config, trail
