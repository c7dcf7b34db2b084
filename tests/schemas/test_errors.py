"""The error tree: who is at fault, what happens next, and that errors travel."""

import copy
import inspect
import pickle
import re
from typing import get_args

import pytest

from slotstream.schemas import errors
from slotstream.schemas.errors import ConfigError, EngineError, RecordError, SlotstreamError, Stage

ALL = [error for _, error in inspect.getmembers(errors, inspect.isclass) if issubclass(error, SlotstreamError)]
OF_A_RECORD = [error for error in ALL if issubclass(error, RecordError) and error is not RecordError]


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn: list[tuple[str, str | None]] = []
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"    ((?:[│ ]   )*)(?:[├└]── )?([A-Z]\w+)(?: |$)", line):
            depth = 0 if match[2] == "SlotstreamError" else len(match[1]) // 4 + 1
            path[depth:] = [match[2]]
            drawn.append((match[2], path[depth - 1] if depth else None))
    parents = {error.__name__: error.__mro__[1].__name__ for error in ALL}
    assert dict(drawn) == parents | {"SlotstreamError": None}
    assert len(drawn) == len(ALL)


def test_every_error_is_exported() -> None:
    assert {error.__name__ for error in ALL} | {"Stage"} == set(errors.__all__)


@pytest.mark.parametrize("error", ALL)
def test_an_error_says_whose_fault_it_is_and_ends_the_command_line_with_a_failure(error: type[SlotstreamError]) -> None:
    assert error.__doc__
    assert error.exit_code > 0


def test_what_must_be_mended_before_a_start_has_exit_code_2() -> None:
    for error in (ConfigError, errors.DecisionSchemaError, errors.MarkError, errors.EngineNotCapable):
        assert error.exit_code == 2
    assert len({errors.OutputSchemaRefused.exit_code, errors.DeadLetterLimitReached.exit_code, 2, 1}) == 4


def test_an_engine_s_error_is_no_record_s() -> None:
    assert not issubclass(EngineError, RecordError)


@pytest.mark.parametrize("error", OF_A_RECORD)
def test_a_record_s_error_has_a_stage_and_a_code_of_its_own(error: type[RecordError]) -> None:
    assert error.stage in get_args(Stage)
    assert re.fullmatch(r"[a-z_]+", error("x").code)
    assert [other for other in OF_A_RECORD if other.default_code == error.default_code] == [error]


def test_a_narrower_code_replaces_the_class_s() -> None:
    error = errors.DecodeError("the value is no JSON", code="bad_json")
    assert (str(error), error.code, errors.DecodeError("x").code) == (
        "the value is no JSON",
        "bad_json",
        "decode_error",
    )


def test_only_a_time_out_is_worth_another_try() -> None:
    assert [error for error in OF_A_RECORD if error.retriable] == [errors.ReadTimeout]


@pytest.mark.parametrize("error", [RecordError, *OF_A_RECORD])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_record_s_error_survives_pickling(error: type[RecordError], protocol: int) -> None:
    for original in (error("what is wrong"), error("what is wrong", code="narrow")):
        for again in (pickle.loads(pickle.dumps(original, protocol)), copy.deepcopy(original)):
            assert type(again) is error
            assert (str(again), again.code, again.stage) == (str(original), original.code, original.stage)


@pytest.mark.parametrize("error", [error for error in ALL if not issubclass(error, RecordError)])
def test_the_other_errors_survive_pickling(error: type[SlotstreamError]) -> None:
    again = pickle.loads(pickle.dumps(error("what is wrong")))
    assert type(again) is error
    assert str(again) == "what is wrong"
