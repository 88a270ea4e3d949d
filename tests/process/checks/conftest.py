"""The same fixtures as the unit tests of this folder have."""

from tests.unit.checks.conftest import house

__all__ = ["house"]
