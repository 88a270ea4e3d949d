"""`mcpd schema`: the configuration's JSON Schema, for editors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from daemon.cli.options import parser

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """Print the schema. Returns 0; 2: usage."""
    _parser().parse_args(argv)
    # Here, so that `--help` does not read the sources of the model.
    from daemon.config.schema import render  # noqa: PLC0415
    from daemon.surfaces.table import SURFACES  # noqa: PLC0415

    sys.stdout.write(render(list(SURFACES)))
    return 0


def _parser() -> argparse.ArgumentParser:
    return parser(
        "schema",
        "Print the JSON Schema of the configuration. Editors that find it complete and check while you type:"
        ' write "$schema": "./mcpd.schema.json" into the configuration.',
        examples=("mcpd schema > ~/.config/mcpd/mcpd.schema.json",),
        exits={0: "printed"},
        reaches=False,
    )
