"""What was freed is given back."""

from __future__ import annotations

import subprocess
import sys

from daemon.heap import give_back, spare

GROW = """
from daemon.heap import give_back, spare

def grow():
    array = bytearray()
    while len(array) < 10_000_000:
        array += bytes(64 * 1024)

for _ in range(3):
    grow()
before = spare()
give_back()
print(before, spare())
"""


def test_what_a_large_message_has_left_at_the_end_of_the_heap_is_given_back() -> None:
    ran = subprocess.run([sys.executable, "-c", GROW], capture_output=True, text=True, timeout=60, check=True)
    before, after = map(int, ran.stdout.split())
    assert before >= 5_000_000
    assert after <= 1_000_000


def test_it_may_be_asked_at_any_time() -> None:
    give_back()
    assert spare() >= 0
