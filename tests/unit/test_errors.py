"""Errors: codes are a contract, every fault is told, and a nursery's group yields the error it is about."""

import pytest

from daemon import errors
from daemon.causes import Cause, Reason
from daemon.errors import CallError, ConfigError, ConnectionLost, Fault, leaf

CODES = {
    *("UnknownCategory", "UnknownTool", "UnknownServer", "ToolDisabled", "InvalidArguments"),
    *("UpstreamUnavailable", "UpstreamCallError", "UpstreamLost", "UpstreamTimeout"),
    *("SchemaFetchError", "RequestTooLarge", "Overloaded"),
}

CALL_ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, CallError) and kind is not CallError
]


def test_the_code_of_a_call_error_is_its_name_and_a_contract() -> None:
    assert all(kind.code == kind.__name__ for kind in CALL_ERRORS)
    assert {kind.code for kind in CALL_ERRORS} >= CODES


def test_a_run_error_carries_a_cause_and_its_data_or_that_of_its_class() -> None:
    exited = ConnectionLost("exited with status 1", Cause.EXITED, status=1)
    assert exited.reason == Reason("exited with status 1", Cause.EXITED, {"status": 1})
    assert str(exited) == "exited with status 1"
    assert errors.CannotStart("no").reason.cause is Cause.CANNOT_START
    assert errors.Busy("later", wait=3.0).reason == Reason("later", Cause.BUSY, {"seconds": 3.0})


@pytest.mark.parametrize(
    ("paths", "first"), [(["$.a"], "mcpd.json: 1 fault"), (["$.a", "$.b"], "mcpd.json: 2 faults")]
)
def test_a_configuration_error_lists_every_fault_with_its_path(paths: list[str], first: str) -> None:
    error = ConfigError("mcpd.json", [Fault(path=path, message="wrong") for path in paths])
    assert str(error).splitlines() == [first, *(f"  {path}: wrong" for path in paths)]
    assert [fault.path for fault in error.faults] == paths
    assert error.source == "mcpd.json"


OURS, FOREIGN = ConnectionLost("ours"), ValueError("foreign")


@pytest.mark.parametrize(
    ("group", "found"),
    [
        (ExceptionGroup("", [OURS]), OURS),
        (ExceptionGroup("", [FOREIGN, OURS]), OURS),
        (ExceptionGroup("", [FOREIGN, ExceptionGroup("", [KeyError(), ExceptionGroup("", [OURS])])]), OURS),
        (ExceptionGroup("", [ExceptionGroup("", [FOREIGN]), KeyError()]), FOREIGN),
        (BaseExceptionGroup("", [KeyboardInterrupt(), FOREIGN]), FOREIGN),
    ],
)
def test_the_leaf_of_a_group_is_our_error_if_it_holds_one(
    group: BaseExceptionGroup[BaseException], found: BaseException
) -> None:
    assert leaf(group) is found
    interrupt = KeyboardInterrupt()
    assert leaf(BaseExceptionGroup("", [interrupt])) is interrupt
