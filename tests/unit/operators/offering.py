"""Servers that offer prompts, resources and templates, for the tests of operators' commands."""

import json
from collections.abc import Mapping

from daemon.catalog.kinds import LISTS
from daemon.facts import DefinitionsListed
from daemon.model import Definition, Kind
from tests.fakes_upstream import Stage


def offer(
    stage: Stage,
    server: str,
    kind: Kind,
    *names: str,
    quarantined: Mapping[str, str] | None = None,
    problem: str = "",
    **members: object,
) -> None:
    """Have a server list these, each with the given members."""
    raws = [{LISTS[kind].key: name, "name": name, **members} for name in names]
    made = [
        Definition(
            kind=kind,
            server=server,
            name=name,
            raw=json.dumps(raw).encode(),
            schema_hash=f"s{name}",
            content_hash=f"c{name}",
        )
        for name, raw in zip(names, raws, strict=True)
    ]
    fact = DefinitionsListed(
        server=server,
        incarnation=stage.catalog.value.servers[server].first_run or 1,
        kind=kind,
        definitions=tuple(made),
        quarantined=quarantined or {},
        problem=problem,
    )
    stage.learn(fact)
