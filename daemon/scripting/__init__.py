"""Scripts that models write, run in worker processes with limits; knows nothing about MCP."""

from pathlib import Path

THIS_CODE = {"PYTHONPATH": str(Path(__file__).parents[2])}
"""The environment of a process that runs this very code, wherever it was found."""
