"""The page of settings: loading on demand, the model for summaries, paths, the configuration file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from daemon.config.config_model import DEFAULT_SURFACE, Profile
from daemon.config.listen import without_values
from daemon.config.parse import load_with_notes
from daemon.console.page import (
    ConsoleAction,
    ConsolePage,
    Fragment,
    Holders,
    Viewer,
    command_action,
    element_id,
    part,
)
from daemon.errors import ConfigError, Fault, InvalidArguments
from daemon.kit.wording import counted, span
from daemon.operators.base import DaemonFacts, OperatorContext
from daemon.operators.change_reports import ReloadReport, SummariesReport, WrittenReport, reloaded, written
from daemon.operators.config_changes import SUMMARIES, LazyParams, SummariesParams, lazy, summaries
from daemon.operators.report_words import RISKS
from daemon.operators.report_words import SURFACES as SURFACE_WORDS
from daemon.operators.server_changes import RELOAD
from daemon.surfaces.table import SURFACES

MAX_NOTES = 50
"""Faults, warnings and notes that are shown, of each; a file with more is probably no configuration."""

MAX_WORD = 300
"""Characters of a profile's or model's name in a form."""


async def _fragments(viewer: Viewer) -> Holders:
    context = viewer.context
    switches: Any = await lazy(context, LazyParams())
    model: Any = await summaries(context, SummariesParams()) if context.summary_model is not None else {}
    return {
        "settings-master": [part("master-switch", "settings_master", on=switches["lazy"], risks=RISKS)],
        "settings-profiles": [
            _profile(name, told, context, master=switches["lazy"])
            for name, told in switches["profiles"].items()
        ],
        "settings-summaries": [_summaries(context, model)],
        "settings-machine": [_machine(context)],
        "settings-file": [await _file(context)],
    }


SETTINGS_PAGE = ConsolePage(
    path="/settings", title="Settings", template="settings.html", fragments=_fragments, calls_every=None
)


def _profile(name: str, told: Mapping[str, Any], context: OperatorContext, *, master: bool) -> Fragment:
    return part(
        element_id("profile", name),
        "settings_profile",
        **told,
        name=name,
        master=master,
        shows=SURFACE_WORDS.get(told["surface"], ""),
        idle=_idle(context.config.profiles.get(name), told["surface"]),
    )


def _idle(profile: Profile | None, surface: str) -> str:
    if profile is None or surface == DEFAULT_SURFACE:
        return ""
    chosen = {"preload": ("load", profile.preload), "coreTools": ("search", profile.core_tools)}
    idle = [key for key, (only, names) in chosen.items() if names and surface != only]
    return f"The choice of {' and '.join(idle)} has no effect on this surface." if idle else ""


def _summaries(context: OperatorContext, model: Mapping[str, Any]) -> Fragment:
    asked = None if context.summary_model is None else context.summary_model()
    state = model.get("state")
    return part(
        "summaries",
        "settings_summaries",
        state=state,
        last_error=context.redact((state or {}).get("last_error", "")),
        prompt=model.get("prompt", ""),
        sends=model.get("sends", ""),
        offered=None if asked is None or asked.offered is None else list(asked.offered),
        tested=None if asked is None else asked.tested,
    )


def _machine(context: OperatorContext) -> Fragment:
    facts, persistence, http = context.facts, context.archive.persistence.value, context.config.listen.http
    doors = {
        name: {"open": each["open"], "places": each["places"], "refused": sum(each["refused"].values())}
        for name, each in context.clients.connections().items()
    }
    return part(
        "machine",
        "settings_machine",
        facts=facts,
        persistence=persistence,
        reason=context.redact(persistence.reason),
        where=context.redact(persistence.where),
        doors=doors,
        http=None if http is None else http.address,
        tokens=_tokens(context),
        token_problem="" if context.access is None else context.access.problem,
    )


def _tokens(context: OperatorContext) -> list[dict[str, object]]:
    used = {} if context.access is None else context.access.used
    configured = without_values(context.config.listen.http) or []
    names = dict.fromkeys([*(str(each["name"] or "") for each in configured), *used])
    return [{"name": name, "used": used.get(name)} for name in names]


async def _file(context: OperatorContext) -> Fragment:
    path = Path(context.facts.directory or ".", context.facts.config)
    told = await trio.to_thread.run_sync(_check, path, context.facts)
    return part(
        "file",
        "settings_file",
        path=context.facts.config,
        **{kind: [context.redact(str(each)) for each in said[:MAX_NOTES]] for kind, said in told.items()},
        watched=context.config.watch,
    )


def _check(path: Path, facts: DaemonFacts) -> dict[str, Sequence[Fault]]:
    """The findings of `mcpd check` for the file as it is now. Blocks."""
    try:
        checked = load_with_notes(path, facts.environ, SURFACES)
    except ConfigError as error:
        # A server may wait for a variable: the daemon reads such a file.
        kind = "warnings" if all(each.variable for each in error.faults) else "faults"
        return {"faults": (), "warnings": (), "notes": (), kind: error.faults}
    return {"faults": (), "warnings": facts.warnings(checked, path, facts.environ), "notes": checked.notes}


# --- what is done on it -------------------------------------------------------------------------------------


async def _throw(viewer: Viewer, fields: Mapping[str, str]) -> str:
    on, profile = fields.get("on", ""), _word(fields.get("profile", "")) or None
    if on not in {"on", "off"}:
        raise InvalidArguments("a switch can only be set on or off")
    report: Any = await lazy(viewer.context, LazyParams(on=on == "on", profile=profile))
    what = "Loading on demand" if profile is None else f"Loading on demand of profile {profile}"
    return _noted(f"{what} is switched {on}", report["changed"], report["note"])


def _models_listed(report: SummariesReport) -> list[str]:
    return [f"The endpoint offers {counted(len(report['models']), 'model')}."]


async def _choose_model(viewer: Viewer, fields: Mapping[str, str]) -> str:
    model = _word(fields.get("model", ""))
    if not model:
        raise InvalidArguments("choose a model")
    report: Any = await summaries(viewer.context, SummariesParams(model=model))
    return _noted(f"{model} writes summaries from now on", report["changed"])


async def _test_model(viewer: Viewer, fields: Mapping[str, str]) -> str:
    report: Any = await summaries(viewer.context, SummariesParams(test=fields.get("question", "").strip()))
    test = report["test"]
    return f"The model has answered in {span(test['seconds'])}: its answer is below."


def _reloaded(report: ReloadReport) -> list[str]:
    return ["The configuration was read.", *reloaded(report)]


def _word(written: str) -> str:
    if len(written) > MAX_WORD:
        raise InvalidArguments(f"a name has at most {MAX_WORD} characters")
    return written


def _noted(said: str, changed: WrittenReport, note: str = "") -> str:
    return f"{said} ({written(changed)}){f'. Note: {note}' if note else ''}."


SETTINGS_ACTIONS = (
    ConsoleAction(path="/settings/lazy", act=_throw),
    command_action("/settings/models", SUMMARIES, _models_listed, models=True),
    ConsoleAction(path="/settings/model", act=_choose_model),
    ConsoleAction(path="/settings/test", act=_test_model),
    command_action("/settings/reload", RELOAD, _reloaded),
)
