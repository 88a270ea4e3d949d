"""What a command has printed, once it has ended as it should."""

import pytest


def out_of(capsys: pytest.CaptureFixture[str], status: object, expected: int = 0) -> str:
    """The stdout of a command that has ended with this status."""
    assert status == expected, capsys.readouterr()
    return capsys.readouterr().out


def err_of(capsys: pytest.CaptureFixture[str], status: object, expected: int = 0) -> str:
    """The stderr of a command that has ended with this status."""
    assert status == expected, capsys.readouterr()
    return capsys.readouterr().err
