"""`mcpd lazy`: show and throw the switches of loading tools on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli import EX_CONFIG
from daemon.cli.changing import reported
from daemon.cli.options import add_control, add_json, parser
from daemon.cli.own_settings import PATIENCE, add_config, asked, write
from daemon.cli.own_settings import in_words as written
from daemon.kit.wording import counted
from daemon.operators.loaded_words import RISKS
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse

_SHOWS = {
    "auto": "the surface that fits the client",
    "category": "a tool for each category of tools, called through one tool",
    "browse": "tools to list categories, to describe tools and to call them",
    "search": "a tool that finds tools, and one that calls them",
    "load": "tools to load servers' tools, which are then listed",
    "full": "every tool, with its whole description",
}
"""What each surface shows, in a line."""


def main(argv: list[str]) -> int:
    """Show or throw a switch.

    Returns:
        0: shown, or thrown; 1: no such profile, or the file cannot be written; 2: usage; 3: the daemon is not
        reachable; 78: the configuration is faulty.
    """
    made = _parser()
    options = made.parse_args(argv)
    on = None if options.switch is None else options.switch == "on"
    if options.config is not None:
        if on is None:
            made.error("--config writes a switch: say on or off")
        trail = ("lazy",) if options.profile is None else ("profiles", options.profile, "lazy")
        return reported(lambda: write(options, trail, on))
    return asked(options, "lazy", {"on": on, "profile": options.profile}, in_words)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "lazy",
        "Show the switches of loading on demand, or throw one. The master switch (`lazy`) off: every profile"
        " shows every tool. A profile's switch (`profiles.P.lazy`) off: that profile does. It is written into"
        " the configuration where it stands, with comments and layout kept, and counts at once: sessions that"
        " are open get the other tools and are told.",
        examples=("mcpd lazy", "mcpd lazy off", "mcpd lazy on --profile reader"),
        exits={
            0: "shown, or as wished",
            1: "there is no such profile, or the configuration cannot be written",
            EX_CONFIG: "the configuration is faulty: nothing was changed",
        },
    )
    made.add_argument("switch", metavar="on|off", nargs="?", choices=("on", "off"), help="how it is to be")
    made.add_argument("--profile", metavar="PROFILE", help="this profile's switch, not the master switch")
    add_config(made)
    add_json(made)
    add_control(made, PATIENCE)
    return made


def in_words(answer: dict[str, Any]) -> str:
    """All switches, and what each means now."""
    lines = [written(answer["changed"])] if answer["changed"] else []
    if answer["note"]:
        lines.append(f"note: {answer['note']}")
    lines.append(f"lazy {_on(answer['lazy'])}: {_master(on=answer['lazy'])}")
    lines += [_profile(name, told) for name, told in answer["profiles"].items()]
    lines += [RISKS] if answer["lazy"] else []
    return "\n".join(map(visible, lines))


def _master(*, on: bool) -> str:
    if on:
        return "each profile shows what its own switch and surface say"
    return "every profile shows every tool, whatever its own switch says"


def _profile(name: str, told: dict[str, Any]) -> str:
    surface = told["surface"]
    shows = f"{surface}, {_SHOWS[surface]}" if surface in _SHOWS else surface
    return f"  {name} {_on(told['on'])}: {shows}; {counted(told['sessions'], 'session')}"


def _on(on: object) -> str:
    return "on" if on else "off"
