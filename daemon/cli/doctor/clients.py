"""Checks the clients that mcpd is in: rules of theirs that name tools as they were called without mcpd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli.doctor.findings import found
from daemon.documents.files import DocumentError
from daemon.errors import ConfigError
from daemon.host import paths
from daemon.setup.clients.found import find
from daemon.setup.clients.identity import ConfiguredServers
from daemon.setup.clients.known_programs import PROGRAMS
from daemon.setup.clients.programs import OWN_NAME, Machine
from daemon.setup.clients.records import Records
from daemon.setup.clients.rules import held_rules, listed
from daemon.setup.drafts import read_present

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.cli.doctor.findings import Finding
    from daemon.cli.doctor.scene import Scene


def check(scene: Scene) -> Iterator[Finding]:
    """Findings about each client whose model reaches all servers through one entry of mcpd's."""
    if scene.config is None:
        return
    machine = Machine(home=paths.home(scene.environ), directory=Path.cwd(), environ=scene.environ)
    try:
        present = read_present(scene.path)
    except DocumentError:  # another user's: that user's clients are meant
        return
    known = ConfiguredServers(servers=present.servers, variables={**present.variables, **scene.environ})
    own = find(machine, PROGRAMS.values()).own
    for program in dict.fromkeys(each.program for each in own if each.name == OWN_NAME):
        lookup = known.lookup(program, machine)
        try:
            _, rules = held_rules(program, machine, lookup, known.servers, Records(scene.state))
        except (ConfigError, DocumentError) as error:
            yield found("not-looked-at", place=program.title, problem=str(error).partition("\n")[0])
        else:
            if rules:
                yield found("client-rules-void", title=program.title, client=program.name, rules=listed(rules))
