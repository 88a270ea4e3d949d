"""FastMCP's CodeMode in front of servers: `code_mode.py CONFIG.json`, with `fastmcp[code-mode]` installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fastmcp.experimental.transforms.code_mode import CodeMode  # type: ignore[import-not-found]
from fastmcp.server import create_proxy  # type: ignore[import-not-found]

if __name__ == "__main__":
    proxy = create_proxy(json.loads(Path(sys.argv[1]).read_bytes()))
    proxy.add_transform(CodeMode())
    proxy.run(show_banner=False)
