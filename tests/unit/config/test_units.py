"""Times, sizes and users are read as people write them."""

import math
import pwd
import re

import pytest

from daemon.config import tuning
from tests.unit.cases import cases
from tests.unit.config.reading import config_of, server_of


@cases("text", "seconds")
def test_a_time_has_a_unit(text: str, seconds: float) -> None:
    assert tuning.seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16k", 16_384), ("2GB", 2_000_000_000), ("2GiB", 2**31), ("512MiB", 2**29), ("512 MB", 512_000_000),
        ("1.5m", 3 * 2**19), ("999999T", 999_999 * 2**40),
    ],
)  # fmt: skip
def test_a_size_has_a_unit(text: str, size: int) -> None:
    assert re.fullmatch(tuning.SIZE, text)
    assert tuning.size(text) == size
    assert size < 2**63


def test_all_of_them_are_understood_in_a_configuration() -> None:
    me = pwd.getpwuid(0)
    config = config_of({"listen": {"uids": [me.pw_name, 4711]}, "limits": {"clientMessageBytes": "1MiB"}})
    assert config.listen.uids == (0, 4711)
    assert config.limits.client_message_bytes == 2**20
    server = server_of(
        {
            "command": "x",
            "timeouts": {"call": "2m", "callMax": "off", "pingInterval": "off", "stopTerm": "500ms"},
            "restart": {"cap": "5m"},
            "limits": {"memoryBytes": "2GB"},
        }
    )
    assert (server.timeouts.call, server.timeouts.call_max) == (120, math.inf)
    assert (server.timeouts.stop_term, server.restart.cap, server.limits.memory_bytes) == (0.5, 300, 2 * 10**9)
