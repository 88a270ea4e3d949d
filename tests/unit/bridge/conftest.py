"""The directory for sockets that the tests of commands have."""

from tests.unit.cli.conftest import sockets

__all__ = ["sockets"]
