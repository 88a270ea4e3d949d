"""Commands that change one key of the configuration, through the daemon or in the file of `--config`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from daemon.cli.command import UsageError, asking
from daemon.cli.control import say
from daemon.cli.taking_effect import reloaded
from daemon.cli.tools import tool_name
from daemon.kit.later import later
from daemon.kit.wording import counted, span
from daemon.operators.change_reports import newly_described, written
from daemon.operators.report_words import RISKS, SURFACES

if TYPE_CHECKING:
    import argparse

    from daemon.operators import change_reports
    from daemon.setup import settings
else:
    settings = later("daemon.setup.settings")


def write(options: argparse.Namespace, trail: tuple[str, ...], value: object) -> int:
    """Change a key in the file of `--config`, and reload. Raises ConfigError or DocumentError."""
    path = options.config.absolute()
    edit = settings.edited(path, [settings.Setting(trail=trail, value=value)], os.environ)
    edit.write()
    effect = reloaded(options, path)
    then = effect.problem or "the daemon has read it again"
    word = "written at" if edit.is_new else "is already at"
    (place,) = edit.places
    say(f"{word} {place.key} in {place.file}; {then}")
    return 0


# --- describe ---------------------------------------------------------------------------------------------


_ask_to_describe = asking("describe", "tool text", newly_described)


def describe(options: argparse.Namespace) -> int:
    """Write a tool's description for models into the configuration, or remove it."""
    tool_name(options.tool)
    if (options.text is None) is not options.reset:
        raise UsageError("write the description, or --reset")
    return _ask_to_describe(options)


# --- lazy -------------------------------------------------------------------------------------------------


def switches(answer: change_reports.LazyReport) -> list[str]:
    """All switches of loading on demand, with their effects."""
    lines = [written(answer["changed"])] if answer["changed"] else []
    if answer["note"]:
        lines.append(f"note: {answer['note']}")
    off = "every profile shows every tool, whatever its own switch says"
    shown = "each profile shows what its own switch and surface say" if answer["lazy"] else off
    lines.append(f"lazy {_on(answer['lazy'])}: {shown}")
    lines += [_profile(name, profile) for name, profile in answer["profiles"].items()]
    return [*lines, *([RISKS] if answer["lazy"] else [])]


def _profile(name: str, profile: change_reports.ProfileSwitchReport) -> str:
    surface = profile["surface"]
    shows = f"{surface}, {SURFACES[surface]}" if surface in SURFACES else surface
    return f"  {name} {_on(profile['on'])}: {shows}; {counted(profile['sessions'], 'session')}"


def _on(on: object) -> str:
    return "on" if on else "off"


_ask_to_switch = asking(
    "lazy",
    lambda options: {
        "on": None if options.switch is None else options.switch == "on",
        "profile": options.profile,
    },
    switches,
)


def lazy(options: argparse.Namespace) -> int:
    """Show the switches of loading on demand, or turn one."""
    if options.config is None:
        return _ask_to_switch(options)
    if options.switch is None:
        raise UsageError("--config writes a switch: write on or off, too")
    trail = ("lazy",) if options.profile is None else ("profiles", options.profile, "lazy")
    return write(options, trail, options.switch == "on")


# --- summaries --------------------------------------------------------------------------------------------


def _summary(answer: change_reports.SummariesReport) -> list[str]:
    """The requested detail of summaries; else their state, prompt and the data that the endpoint gets."""
    if "models" in answer:
        return _models(answer)
    if "changed" in answer:
        return [written(answer["changed"])]
    return _test(answer["test"]) if "test" in answer else _state(answer)


def _models(answer: change_reports.SummariesReport) -> list[str]:
    chosen = (answer["state"] or {}).get("model")
    if not answer["models"]:
        return ["the endpoint lists no models"]
    return [f"{'*' if name == chosen else ' '} {name}" for name in answer["models"]]


def _test(test: change_reports.ModelTestReport) -> list[str]:
    tokens = {"read": test["tokensRead"], "written": test["tokensWritten"]}
    counts = [counted(n, f"token {word}", f"tokens {word}") for word, n in tokens.items() if n is not None]
    lines = [*test["answer"].splitlines(), "", ", ".join([span(test["seconds"]), *counts])]
    return [*lines, f"it cannot be used: {test['fault']}"] if test["fault"] else lines


def _state(answer: change_reports.SummariesReport) -> list[str]:
    state = answer["state"]
    if state is None:
        return [f"no model is configured (`summaries` in {answer['config']}): descriptions are cut"]
    lines = [f"{state['model']} at {state['endpoint']}"]
    if state.get("off"):
        lines.append(state["off"])
    if "asked" in state:
        asked = counted(state["asked"], "question")
        lines.append(f"{asked}, {state['answered']} answered; {counted(state['sentences'], 'sentence')} taken,")
        lines[-1] += f" {state['refused']} refused; {state['waiting']} waiting, {state['given_up']} given up"
    if state.get("last_error"):
        lines.append(f"last error: {state['last_error']}")
    sent = f"What is sent to {state['endpoint']}: {answer['sends']}"
    prompt = ["  " + line for line in answer["prompt"].splitlines()]
    return [*lines, "", sent, "", "The prompt, which cannot be changed:", *prompt]


_ask_of_summaries = asking(
    "summaries", "models model test", _summary, lambda answer: answer.get("test", {}).get("fault")
)


def summaries(options: argparse.Namespace) -> int:
    """Show the state of summaries, list or choose models, or put a question to the model."""
    if options.config is None:
        return _ask_of_summaries(options)
    if options.model is None:
        raise UsageError("--config writes the model: name it with --model, too")
    return write(options, ("summaries", "model"), options.model)
