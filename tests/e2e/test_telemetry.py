"""Telemetry of the real daemon: what a collector gets, and what one that misbehaves costs."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.collector import Collected, collector
from tests.e2e.harness import ROOT, running, scripted
from tests.waiting import WAIT, eventually

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TIME = scripted(tools=["get_current_time"])
CALL = {"name": "call-category-tool", "arguments": {"category": "time", "name": "get_current_time", "args": {}}}
