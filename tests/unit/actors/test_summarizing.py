"""A model is asked as the configuration says at each moment, and not at all where nobody sees what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.testing

from daemon.actors.summarizer import SummarizerState
from daemon.actors.summarizing import SWITCHED_OFF, Summarizing
from daemon.catalog.snapshot import begin
from daemon.kit.waiting import Watch
from tests.unit.config.reading import config_of
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from daemon.config.config_model import Summaries


MODEL = {"baseUrl": "https://user:pass@models.example:8443/v1?k=secret", "model": "small"}
OTHER = {**MODEL, "model": "large"}


class FakeAsking:
    """Asks until it is cancelled, or has nobody to ask."""

    def __init__(self, summaries: Summaries, house: House) -> None:
        self.model = summaries.model
        self._house = house
        self.state = SummarizerState(sentences=3)

    async def run(self) -> None:
        if self._house.fault is not None:
            self._house.failed.set()
            raise self._house.fault
        self._house.asking.append(self.model)
        self._house.stirred()
        try:
            await trio.sleep_forever()
        finally:
            self._house.asking.remove(self.model)
            self._house.stirred()


class House:
    """A configuration that changes, and who asks under it."""

    def __init__(self, **written: Any) -> None:
        self.catalog = Watch(begin(config_of(written), now=0.0))
        self.asking: list[str] = []
        self.fault: Exception | None = None
        self.failed = trio.Event()
        self.summarizing = Summarizing(self.catalog, lambda summaries: FakeAsking(summaries, self))
        self._news = trio.Event()

    def becomes(self, **written: Any) -> None:
        """Another configuration is in force."""
        self.catalog.set(attrs.evolve(self.catalog.value, config=config_of(written)))

    def stirred(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def asks(self, *models: str) -> None:
        """Wait until exactly these are asked."""
        with trio.fail_after(PATIENCE):
            while self.asking != [*models]:
                await self._news.wait()

    @property
    def told(self) -> dict[str, object]:
        return dict(self.summarizing.state or {})


async def test_another_model_is_asked_when_the_configuration_names_another(nursery: trio.Nursery) -> None:
    house = House()
    nursery.start_soon(house.summarizing.run)
    assert house.summarizing.state is None
    house.becomes(summaries=MODEL)
    await house.asks("small")
    asking = house.asking
    house.becomes(summaries=MODEL, watch=True)
    await trio.testing.wait_all_tasks_blocked()
    assert house.asking is asking
    house.becomes(summaries=OTHER)
    await house.asks("large")
    house.becomes()
    await house.asks()


OFF = [
    {"lazy": False},
    {"profiles": {"default": {"lazy": False}}},
    {"profiles": {"default": {"surface": "full"}, "p": {"deferredLoading": False}}},
]


@pytest.mark.parametrize("off", OFF)
async def test_nothing_is_asked_where_loading_on_demand_is_switched_off(
    nursery: trio.Nursery, off: dict[str, Any]
) -> None:
    house = House(summaries=MODEL, **off)
    nursery.start_soon(house.summarizing.run)
    await trio.testing.wait_all_tasks_blocked()
    assert not house.asking
    assert house.told == {"model": "small", "endpoint": "models.example:8443", "off": SWITCHED_OFF}
    house.becomes(summaries=MODEL)
    await house.asks("small")
    house.becomes(summaries=MODEL, **off)
    await house.asks()


async def test_one_profile_that_loads_on_demand_is_enough(nursery: trio.Nursery) -> None:
    house = House(summaries=MODEL, profiles={"default": {"surface": "full"}, "p": {"surface": "load"}})
    nursery.start_soon(house.summarizing.run)
    await house.asks("small")
    assert house.told["sentences"] == 3
    assert (house.told["model"], house.told["endpoint"]) == ("small", "models.example:8443")
    assert "secret" not in str(house.told)


async def test_a_fault_of_ours_waits_for_another_configuration(nursery: trio.Nursery) -> None:
    house = House(summaries=MODEL)
    house.fault = RuntimeError("a bug")
    nursery.start_soon(house.summarizing.run)
    with trio.fail_after(PATIENCE):
        await house.failed.wait()
    house.fault = None
    house.becomes(summaries=OTHER)
    await house.asks("large")
