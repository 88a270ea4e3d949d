"""Files of clients that nobody has written: any servers, any order, comments and blank lines between them."""

import json
import random
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from daemon.documents.formats import Format
from daemon.setup.clients.programs import PROGRAMS, ClientPlace, Machine
from tests.unit.documents.test_json_document import sprinkled

HOME = Path("/home/ada")
MACHINE = Machine(home=HOME, directory=HOME / "proj", environ={})
_EACH = {
    (place.shape, place.form, place.listed, len(place.trail)): (f"{name}-{place.scope}", place)
    for name, program in PROGRAMS.items()
    for place in program.places(MACHINE)
}
PLACES = dict(_EACH.values())
"""A place of each shape and format."""

NAMES = ["git", "time", "files", "Brave Search", "my.server"]

words = st.lists(st.sampled_from(["-y", "a", "b c"]))
programs = st.fixed_dictionaries({"command": st.sampled_from(["uvx", "npx", "/opt/x"]), "args": words})
servers = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(programs, st.dictionaries(st.sampled_from(["A", "B"]), st.sampled_from(["1", "é"]))),
)


def entry(place: ClientPlace, name: str, made: tuple[dict[str, Any], dict[str, str]]) -> dict[str, Any]:
    """A server as the client of a place writes it, with variables and a key that only the client knows."""
    program, variables = made
    written = place.shape.write(program["command"], program["args"])
    return {**written, "env": variables, "timeout": 5, **({"name": name} if "name" in written else {})}


def text(place: ClientPlace, given: dict[str, dict[str, Any]], dice: random.Random) -> str:
    """A file with these servers."""
    return {Format.JSON: _json, Format.TOML: _toml, Format.YAML: _yaml}[place.form](place, given, dice)


def _json(place: ClientPlace, given: dict[str, dict[str, Any]], dice: random.Random) -> str:
    value: object = list(given.values()) if place.listed else given
    for step in reversed(place.trail):
        value = {"theme": "dark", step: value} if dice.random() < 0.5 else {step: value, "last": [1]}
    indents: list[int | str] = [2, 4, "\t"]
    return sprinkled(value, dice) if dice.random() < 0.7 else json.dumps(value, indent=dice.choice(indents))


def _toml(place: ClientPlace, given: dict[str, dict[str, Any]], dice: random.Random) -> str:
    (section,) = place.trail
    parts = ['model = "x" # the best\n']
    for name, written in given.items():
        members = [f"{key} = {json.dumps(value)}" for key, value in written.items() if key != "env"]
        variables = ", ".join(f"{key} = {json.dumps(value)}" for key, value in written["env"].items())
        members.append(f"env = {{ {variables} }}" if variables else "# no variables")
        parts.append(f"{_between(dice)}[{section}.{json.dumps(name)}]\n" + "\n".join(members) + "\n")
    return "".join([*parts, f"{_between(dice)}[profiles.x]\nmodel = 'y'\n"])


def _yaml(place: ClientPlace, given: dict[str, dict[str, Any]], dice: random.Random) -> str:
    (section,) = place.trail
    parts = ["# mine\nversion: 1\n", f"{section}:\n" if given else ""]
    for name, written in given.items():
        members = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in written.items()]
        first = "  - " if place.listed else f"  {json.dumps(name)}:\n    "
        parts.append(f"{_between(dice, '  ')}{first}" + "\n    ".join(members) + "\n")
    return "".join([*parts, "last: true # the end\n"])


def _between(dice: random.Random, indent: str = "") -> str:
    return dice.choice(["", "", "\n", f"{indent}# about the next\n", f"\n{indent}# free\n\n"])
