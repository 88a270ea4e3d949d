"""`python -m daemon.authorization`: does one login, which stdin asks for."""

from __future__ import annotations

import logging
import sys

import trio

from daemon.authorization.login_process import main

# The SDK logs what fails, with what it was answered.
logging.disable()
try:
    trio.run(main)
except Exception as error:  # noqa: BLE001 - a traceback may hold secrets, and mostly nobody is left to hear it
    sys.exit(f"the login ended: {type(error).__name__}")
