"""The same fixtures as the unit tests of this folder have."""

from tests.unit.cli.doctor.conftest import house

__all__ = ["house"]
