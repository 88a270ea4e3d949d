"""A browser that agrees to everything, as a program: `BROWSER="python browser.py %s"`."""

from __future__ import annotations

import sys

import trio

from tests.process.authorization.serving import browse

if __name__ == "__main__":
    trio.run(lambda: browse(sys.argv[1], until=""))
