"""`mcpd schema`: the configuration's JSON Schema, for editors."""

from __future__ import annotations

import sys

from daemon.cli.options import parser


def main(argv: list[str]) -> int:
    """Print the schema. Returns 0; 2: usage."""
    parser(
        "schema",
        "Print the JSON Schema of the configuration. Editors that find it complete and check while you type:"
        ' write "$schema": "./mcpd.schema.json" into the configuration.',
        examples=("mcpd schema > ~/.config/mcpd/mcpd.schema.json",),
        exits={0: "printed"},
        reaches=False,
    ).parse_args(argv)
    # Here, so that `--help` does not read the sources of the model.
    from daemon.config.schema import render  # noqa: PLC0415
    from daemon.surfaces.table import SURFACES  # noqa: PLC0415

    sys.stdout.write(render(list(SURFACES)))
    return 0
