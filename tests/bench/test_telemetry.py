"""The measuring program of telemetry, with numbers that mean nothing."""

import sys

import pytest

from bench.telemetry import main


@pytest.mark.nightly
def test_daemons_with_collectors_of_each_kind_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rounds", "1", "--seconds", "0.05", "--calls", "100", "--only", "on,collector fails"]
    monkeypatch.setattr(sys, "argv", ["bench.telemetry", *words])
    assert main() == 0
    said = capsys.readouterr().out
    assert said.count("traces lost:") == 2
    assert "32 in flight" in said
