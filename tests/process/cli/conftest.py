"""The same fixtures as the unit tests of this folder have, and commands that are forked."""

from tests.e2e.conftest import forks
from tests.unit.cli.conftest import control

__all__ = ["control", "forks"]
