"""The table of exit codes: whole, frozen, and what the program goes by."""

from __future__ import annotations

import pytest

from storage_consumer import errors
from storage_consumer.cli.endings import ENDINGS, ExitCode, code_of, listed
from storage_consumer.cli.verbs import VERBS


def test_every_command_has_its_codes() -> None:
    """Each command ends with 0, 1 or 2 at least; only `run` has codes of its own; a signal's is no command's."""
    assert set(ENDINGS) == set(VERBS)
    for command, endings in ENDINGS.items():
        assert {ExitCode.DONE, ExitCode.FAILED, ExitCode.MISCONFIGURED} <= set(endings), command
    assert set(ENDINGS["run"]) == set(ExitCode) - {ExitCode.INTERRUPTED}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.ConfigError, ExitCode.MISCONFIGURED),
        (errors.NoMetadata, ExitCode.NO_METADATA),
        (errors.LeaseLost, ExitCode.NOT_THE_WRITER),
        (errors.RowRefused, ExitCode.TABLES_STOPPED),
        (errors.TargetBusy, ExitCode.FAILED),
        (errors.StorageConsumerError, ExitCode.FAILED),
        (ZeroDivisionError, ExitCode.FAILED),
    ],
)
def test_a_class_of_errors_has_the_code_of_its_base(kind: type[Exception], code: ExitCode) -> None:
    """What the error tree says of a class holds for all below it; anything unknown is a failure."""
    assert code_of(kind) is code


def test_nobody_can_change_the_table() -> None:
    """Neither a command nor a code can be put in while the program runs."""
    with pytest.raises(TypeError):
        ENDINGS["run"] = {}  # type: ignore[index]  # that is what the test is about
    with pytest.raises(TypeError):
        ENDINGS["run"][ExitCode.DONE] = ENDINGS["ddl"][ExitCode.DONE]  # type: ignore[index]  # likewise


def test_help_lists_them_in_sequence() -> None:
    """One line for each code, the number first."""
    assert listed("history").splitlines()[:2] == ["  0  shown", "  1  the target did not answer"]
    assert [line.split()[0] for line in listed("rebind").splitlines()] == ["0", "1", "2", "3"]
