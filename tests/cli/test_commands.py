"""Commands behind other commands."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.cli.commands import MAX_DEPTH, started


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("/usr/bin/npx -y x", ["npx -y x"]),
        ("env -i -u B A=1 C=2 npx x A=3", ["npx x A=3"]),
        ("env -C /srv npx x", ["npx x"]),
        ("env -S 'A=1 npx -y x' more", ["npx -y x more"]),
        ("exec nohup command npx x", ["npx x"]),
        ("sudo docker run x", ["docker run x"]),
        ("sudo -u bob --group=g -- A=1 npx foo", ["npx foo"]),
        ("nice -n 5 timeout -k 9 5 setsid -w stdbuf -oL npx foo", ["npx foo"]),
        ("xargs -n 1 npx foo", ["npx foo"]),
        ("timeout", []),
        ("command -v npx", []),
        ("bash -euo pipefail -c 'npx foo'", ["npx foo"]),
        ("bash --rcfile f +o posix -c 'npx foo'", ["npx foo"]),
        ("C:/node/npx.cmd foo", ["npx foo"]),
        ("sh -c 'a 1; b 2 && c 3 | d'", ["a 1", "b 2", "c 3", "d"]),
        ("sh -c 'a 1\nA=1 b 2'", ["a 1", "b 2"]),
        ("bash -xec 'bash -c \"npx x\"'", ["npx x"]),
        ("sh script.sh -c x", ["sh script.sh -c x"]),
        ("sh -c", ["sh -c"]),
        ('sh -c "it\'s"', []),
        ("env", []),
        ("", []),
    ],
)
def test_what_a_command_line_starts(line: str, found: list[str]) -> None:
    assert [" ".join(words) for words in started(shlex.split(line))] == found


def test_wrappers_are_looked_into_to_a_depth() -> None:
    assert list(started(["env"] * MAX_DEPTH + ["npx"])) == [("npx",)]
    assert list(started(["env"] * (MAX_DEPTH + 1) + ["npx"])) == []


@given(
    st.lists(
        st.sampled_from(["env", "sh", "-c", "-S", "A=1", "npx x", "'", ";", "exec", "-u", ""]), max_size=12
    )
)
def test_no_command_line_is_too_odd(words: list[str]) -> None:
    assert all(found for found in started(words))
