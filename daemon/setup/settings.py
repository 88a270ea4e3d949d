"""Changes keys of the configuration and of `profiles.d` in place; comments, order and layout stay."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
from msgspec import UNSET

from daemon.config.config_files import FOLDER, read_profiles
from daemon.config.jsonc import ROOT
from daemon.config.lock_file import LOCK
from daemon.config.parse import MAX_CONFIG, load, load_changed, same
from daemon.config.redaction import secrets
from daemon.config.translation import rename_references
from daemon.documents.edited import EditedText, Trail, spelt, value_at
from daemon.documents.files import DocumentError, Edit, FoundFile, look, undo_all, unified_diff, write_all
from daemon.documents.formats import Format, read_document
from daemon.errors import ConfigError, Fault
from daemon.safety.redact import Redactor
from daemon.setup.locking import written
from daemon.surfaces.table import SURFACES


@attrs.frozen(kw_only=True)
class Setting:
    """A key and its new value."""

    trail: Trail
    """The key's trail: `("profiles", "reader", "lazy")`."""
    value: object
    """The new value; `UNSET` removes the key."""
    becomes: str = ""
    """The key's new name, if it is renamed instead."""
    holder_is_its: bool = False
    """Whether the object around the key exists for this key alone, and is removed with it."""


_IN_PROFILE = 2


@attrs.frozen
class KeyPlace:
    """The place of a key."""

    file: Path
    key: str
    """The key as its file spells it: `$.profiles.reader.lazy`."""


@attrs.frozen(kw_only=True)
class SettingsEdit:
    """A configuration with changed keys, after it was checked."""

    places: tuple[KeyPlace, ...]
    changed: tuple[Edit, ...]
    secrets: frozenset[str] = attrs.field(default=frozenset(), repr=False)
    moves: tuple[Path, ...] = ()
    """A directory that moves along, and its new place."""

    @property
    def is_new(self) -> bool:
        """Whether any file changes."""
        return bool(self.changed)

    def diff(self) -> str:
        """A unified diff, without secrets."""
        shown = "".join(unified_diff(each.found.path, each.found.text(), each.text) for each in self.changed)
        return Redactor(self.secrets)(shown, len(shown))

    def write(self) -> None:
        """Replace all files atomically, or none. Raises DocumentError."""
        with _moved(self.moves):
            write_all(self.changed)

    @property
    def stands(self) -> bool:
        """Whether all files are still as they were written. Raises DocumentError."""
        return all(each.stands for each in self.changed)

    def undo(self) -> None:
        """Restore the former files. Raises DocumentError if a file has changed since or cannot be written."""
        with _moved(self.moves[::-1]):
            undo_all(self.changed)


@contextmanager
def _moved(places: Sequence[Path]) -> Iterator[None]:
    """Move a directory from the first place to the second; back if the block fails."""
    with ExitStack() as back:
        for was, now in pairwise(places):
            with suppress(OSError):  # The files are what matters.
                was.rename(now)
                back.callback(now.rename, was)
        yield
        back.pop_all()


def edited(config: Path, settings: Sequence[Setting], environ: Mapping[str, str]) -> SettingsEdit:
    """Read a configuration and change keys in memory. Blocks; raises ConfigError and DocumentError."""
    opened: dict[Path, tuple[FoundFile, EditedText]] = {}
    places = []
    removed: list[tuple[Path, Trail]] = []
    with ExitStack() as changes:
        for setting in settings:
            path, trail = _holder(config, setting.trail)
            if path not in opened:
                opened[path] = _open(path)
                # There may be hundreds of profiles, and to check a text takes as long as it is.
                changes.enter_context(opened[path][1].together())
            if (gone := apply(opened[path][1], setting, trail)) is not None:
                removed.append((path, gone))
            places.append(KeyPlace(path, spelt(trail)))
    texts = {path: document.text() for path, (_, document) in opened.items()}
    for path, text in texts.items():
        if len(text.encode()) > MAX_CONFIG:
            raise DocumentError(f"{path} would have more than {MAX_CONFIG >> 10} KiB, which mcpd does not read")
    meaning = load_changed(config, texts, environ, SURFACES)
    for path, trail in removed:
        for text in _without_empty(opened[path][1], trail):
            if load_changed(config, {**texts, path: text}, environ, SURFACES) != meaning:
                break
            texts[path] = text
    edits = (Edit(found=found, text=texts[path]) for path, (found, _) in opened.items())
    return SettingsEdit(places=tuple(places), changed=tuple(edit for edit in edits if edit.is_new))


def renamed(config: Path, place: Trail, old: str, new: str, environ: Mapping[str, str]) -> SettingsEdit:
    """Rename the server at `place` in the configuration and the lock, in memory; raises like `edited`."""
    meaning, value = load(config, environ), _open(config)[1].value()
    whole: Any = {"profiles": {}, **(value if isinstance(value, dict) else {})}
    whole["profiles"] = {**read_profiles(config).profiles, **whole["profiles"]}
    rename_references(now := {**whole}, {old: new, str(place[-1]): new})
    edit = edited(config, [*_followed(whole, now), Setting(trail=place, value=UNSET, becomes=new)], environ)
    edits, lock = edit.changed, look(config.with_name(LOCK))
    if meaning.lock is not None and old in meaning.lock.servers:
        content = json.loads(lock.content or "")
        content["servers"][new] = content["servers"].pop(old)
        edits += (Edit(found=lock, text=written(content)),)
    return attrs.evolve(edit, changed=edits, secrets=secrets(meaning))


def _followed(was: Any, now: Any, trail: Trail = ()) -> Iterator[Setting]:
    """The settings that turn `was` into `now`, where keys may be renamed."""
    if isinstance(was, dict | list):
        both = (each.items() if isinstance(each, dict) else enumerate(each) for each in (was, now))
        for (key, old), (other, new) in zip(*both, strict=False):
            if key != other:
                yield Setting(trail=(*trail, key), value=UNSET, becomes=other)
            yield from _followed(old, new, (*trail, other))
    elif was != now:
        yield Setting(trail=trail, value=now)


def differences(new: Any, was: Any, trail: Trail = ()) -> Iterator[Setting]:
    """The settings that turn `was` into `new`."""
    if isinstance(new, dict) and isinstance(was, dict):
        yield from (each for key in new for each in differences(new[key], was.get(key, UNSET), (*trail, key)))
        yield from (Setting(trail=(*trail, key), value=UNSET) for key in was if key not in new)
    elif not same(new, was):
        yield Setting(trail=trail, value=new)


def apply(document: EditedText, setting: Setting, trail: Trail) -> Trail | None:
    """Change a key. If objects around it were removed, too, return the outermost one's trail, else None."""
    if setting.value is not UNSET or setting.becomes:
        document.rename(trail, setting.becomes) if setting.becomes else document.put(trail, setting.value)
        return None
    document.remove(trail)
    if setting.holder_is_its and value_at(document.value(), trail[:-1]) == {}:
        trail = trail[:-1]
        document.remove(trail)
    return trail


def _without_empty(document: EditedText, trail: Trail) -> Iterator[str]:
    """Remove empty objects above a key, innermost first, except those with comments."""
    for end in range(len(trail) - 1, 0, -1):
        if value_at(document.value(), trail[:end]) != {}:
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


def _holder(config: Path, trail: Trail) -> tuple[Path, Trail]:
    """The file that has, or should get, a key, and the key's trail there."""
    if len(trail) > _IN_PROFILE and trail[0] == "profiles" and "/" not in str(trail[1]):
        own = config.parent / FOLDER / f"{trail[1]}.json"
        if look(own).content is not None:
            return own, trail[_IN_PROFILE:]
    return config, trail
