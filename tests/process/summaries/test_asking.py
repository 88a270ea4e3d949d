"""What operators ask the model; with a choice that is written: tests/process/operators/test_summaries.py."""

from __future__ import annotations

import pytest
import trio

from daemon.config.config_model import Config, Summaries
from daemon.errors import McpdError
from daemon.summaries.endpoint import SummaryQuestions
from tests.unit.summaries.endpoint_server import endpoint, well

pytestmark = pytest.mark.process


async def test_the_configuration_that_is_in_force_counts() -> None:
    async with endpoint() as server:
        server.behave(well)
        configs = [Config(), Config(summaries=Summaries(base_url=server.base_url, model="little"))]
        asked = SummaryQuestions(lambda: configs[-1], {})
        with trio.fail_after(30):
            assert (await asked.test(""))["fault"] == ""
        configs.pop()
        with pytest.raises(McpdError, match="no model is configured"):
            await asked.models()
