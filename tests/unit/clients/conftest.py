"""A stage, and a client that is connected to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fakes_upstream import Client, Guest, Stage

if TYPE_CHECKING:
    import trio


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def guest(stage: Stage, nursery: trio.Nursery) -> Guest:
    return await stage.connect(nursery)


@pytest.fixture
def client(guest: Guest) -> Client:
    return guest.client
