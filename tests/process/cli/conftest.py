"""The same fixtures as the unit tests of this folder have."""

from tests.unit.cli.conftest import control

__all__ = ["control"]
