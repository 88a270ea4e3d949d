"""Every fault of the tables, against one daemon whose other server must not notice.

Most are performed beside each other: one more thing that a daemon has to bear. Those that change what is for
all (the file of the configuration, the memory) have the daemon to themselves, and what they leave is counted.

Each run has the cases that `coverage.toml` names and those of clients without a server; `make nightly` has all.
"""

import random
import tomllib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import attrs
import pytest
import trio

from daemon.errors import leaf
from tests.faults import cases_clients, cases_http, cases_network, cases_operators, cases_stdio
from tests.faults.arena import BOUND, Arena, settled
from tests.faults.case import Case, Play
from tests.faults.conftest import SEED
from tests.waiting import in_time

TABLES = (cases_stdio, cases_network, cases_http, cases_clients, cases_operators)

CASES = {f"{table.__name__.rpartition('_')[2]}: {case.name}": case for table in TABLES for case in table.CASES}

ROWS = tomllib.loads(Path(__file__).with_name("coverage.toml").read_text())
NAMED = {test for rows in ROWS.values() for row in rows for test in row.get("tests", ())}


def is_nightly(name: str) -> bool:
    """Whether a case shows again what another one shows on each run."""
    return name not in NAMED and (CASES[name].server is not None or CASES[name].alone)


AT_ONCE = 6
"""Cases beside each other: they mostly wait, and more would be late on two cores."""


@attrs.define
class Performance:
    """All cases that are to be performed."""

    arena: Arena
    directory: Path
    outcomes: dict[str, BaseException | None] = attrs.field(factory=dict)
    """Of each case by its name: what was wrong, if anything."""
    before: dict[str, object] = attrs.field(factory=dict)
    after: object = None
    """What the daemon held, before those beside each other and afterwards."""

    async def run(self, cases: Mapping[str, Case]) -> None:
        """Perform them."""
        beside = [name for name, case in cases.items() if not case.alone and len(cases) > 1]
        places = trio.Semaphore(AT_ONCE)
        async with trio.open_nursery() as nursery:
            for name in beside:
                await places.acquire()
                nursery.start_soon(self._perform, name, cases[name], places)
        self.before = self.arena.at_rest
        self.after = await settled(self.arena.holdings, self.before)
        for name in cases.keys() - beside:
            await places.acquire()
            await self._perform(name, cases[name], places, alone=True)

    async def _perform(self, name: str, case: Case, places: trio.Semaphore, *, alone: bool = False) -> None:
        number = len(list(self.directory.iterdir()))
        directory = self.directory / f"f{number:03}"
        directory.mkdir()
        rng = random.Random(SEED ^ zlib.crc32(name.encode()))
        self.outcomes[name] = None
        try:
            play = Play(self.arena, case, directory.name, directory, rng, alone=alone)
            await in_time(play.perform(), 2 * BOUND)
        except Exception as error:  # noqa: BLE001 - it is the outcome
            # The one sentence that helps, not the nurseries that it came through.
            self.outcomes[name] = leaf(error) if isinstance(error, BaseExceptionGroup) else error
        finally:
            places.release()


class _NoCase:
    params: ClassVar[dict[str, str]] = {}


@pytest.fixture(scope="module")
def performance(stage_for_all: Arena, short_path_for_all: Path, request: pytest.FixtureRequest) -> Performance:
    """The cases of this run, performed."""
    # An item of pytest's own base class has no parameters.
    items = [item for item in request.session.items if item.path == request.path]
    asked = {getattr(item, "callspec", _NoCase).params.get("case") for item in items}
    found = Performance(stage_for_all, short_path_for_all)
    trio.run(found.run, {name: case for name, case in CASES.items() if name in asked})
    return found


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[pytest.mark.nightly] * is_nightly(name)) for name in CASES]
)
def test_a_fault_does_what_is_expected_of_it_and_nothing_else(case: str, performance: Performance) -> None:
    error = performance.outcomes[case]
    if error is not None:
        raise error


def test_nothing_is_left_of_all_that_happened(performance: Performance) -> None:
    assert performance.after == performance.before
