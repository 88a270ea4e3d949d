"""A stage, and a client that is connected to it."""

import pytest
import trio

from tests.fakes_upstream import Client, Guest, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def guest(stage: Stage, nursery: trio.Nursery) -> Guest:
    return await stage.connect(nursery)


@pytest.fixture
def client(guest: Guest) -> Client:
    return guest.client
