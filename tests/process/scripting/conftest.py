"""One process that runs the scripts of all tests here: it starts in a tenth of a second."""

from collections.abc import Iterator

import pytest
import trio

from daemon.scripting.interpreter import ScriptProcess

PROCESS = ScriptProcess()


async def _end() -> None:
    with trio.move_on_after(0):
        await PROCESS.keep()


@pytest.fixture(scope="package", autouse=True)
def _process() -> Iterator[None]:
    yield
    trio.run(_end)
