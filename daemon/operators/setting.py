"""Changing keys of the configuration for an operator: written where it stands, checked, then in force.

What `mcpd` and the console change of the configuration goes through here.
"""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio
from loguru import logger

from daemon.errors import ConfigError
from daemon.kit.later import later
from daemon.kit.wording import camel
from daemon.operators.base import Refused
from daemon.setup.setting import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.config.parse import Plan
    from daemon.documents import files
    from daemon.operators.base import OperatorContext
    from daemon.setup import settings
    from daemon.setup.setting import Setting
    from daemon.setup.settings import SettingsEdit
else:  # Most daemons never change their configuration themselves.
    settings = later("daemon.setup.settings")
    files = later("daemon.documents.files")

EDIT_SECONDS = 10.0
"""Seconds that reading, checking and writing the file may take together: as long as a reload may read it."""


async def change(context: OperatorContext, setting: Setting, command: str) -> dict[str, object]:
    """Write a key where it stands in the configuration, and have the daemon read it again.

    Args:
        context: what the command works with.
        setting: the key and its value.
        command: what does the same on the command line, and takes `--config`: `mcpd lazy off`.

    Returns:
        `file` and `place` (`$.lazy`) of what was written, whether it stood there `already`, and what has been
        done because of it, as `reload` tells it.

    Raises:
        ConfigError: the configuration is faulty, or would be: nothing was changed.
        Refused: the file cannot be written; the text says what can be typed instead.
    """
    edit, plan = await _changed(context, (setting,), command)
    done = {camel(field): list(names) for field, names in attrs.asdict(plan, recurse=False).items()}
    return {**_places(edit)[0], "already": not edit.is_new, **done}


async def change_all(context: OperatorContext, wanted: Sequence[Setting]) -> dict[str, object]:
    """As `change`, for keys that are written together, or none of them.

    Returns:
        `places`: the `file` and `place` of each; whether all stood there `already`.
    """
    if not wanted:
        return {"places": [], "already": True}
    edit, _ = await _changed(context, wanted)
    return {"places": _places(edit), "already": not edit.is_new}


def _places(edit: SettingsEdit) -> list[dict[str, str]]:
    """Where what was changed stands, as reports say it."""
    return [{"file": str(each.file), "place": each.key} for each in edit.places]


async def _changed(
    context: OperatorContext, wanted: Sequence[Setting], command: str = ""
) -> tuple[SettingsEdit, Plan]:
    path = Path(context.facts.directory or ".", context.facts.config)
    async with context.switching:
        try:
            edit = await _in_thread(partial(_write, path, wanted, context.facts.environ))
        except files.DocumentError as error:
            raise Refused(f"{error}. {_instead(command, path, wanted)}") from None
        try:
            plan = await context.reload()
        except ConfigError:
            # What the file says must be what a new start can read.
            if edit.is_new:
                await _in_thread(edit.undo)
            raise
    for each in edit.places if edit.is_new else ():
        logger.info("an operator has changed {} in {}", each.key, each.file)
    return edit, plan


def _write(path: Path, wanted: Sequence[Setting], environ: Mapping[str, str]) -> SettingsEdit:
    edit: SettingsEdit = settings.edited(path, wanted, environ)
    edit.write()
    return edit


async def _in_thread(work: Any) -> Any:
    """Do it in a thread that is left behind if the file system hangs; modules are loaded there, too."""
    with trio.move_on_after(EDIT_SECONDS):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    raise Refused(f"no answer from the configuration's file system within {EDIT_SECONDS:g} s: look at it")


def _instead(command: str, path: Path, wanted: Sequence[Setting]) -> str:
    by_hand = " and ".join(map(_wanted, wanted))
    typed = f"types `{command} --config {shlex.quote(str(path))}`, or " if command else ""
    return f"Whoever may write it {typed}changes {by_hand} there by hand, then `mcpd reload`"


def _wanted(setting: Setting) -> str:
    key = ".".join(setting.trail)
    if setting.value is UNSET:
        return f"{key} (to be removed)"
    return f"{key}: {json.dumps(setting.value, ensure_ascii=False)}"
