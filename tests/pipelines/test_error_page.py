"""The page of errors in docs/ is the one that is printed, and it has a section for every code."""

import re
from pathlib import Path

import pytest

from slotstream.pipelines.cli import main
from slotstream.pipelines.error_page import error_page, error_section
from slotstream.schemas.error_codes import ERROR_CODES

ROOT = Path(__file__).parents[2]


def test_the_page_in_docs_is_the_one_that_is_printed() -> None:
    docs = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert docs == error_page(), "renew it: slotstream errors > docs/errors.md"


@pytest.mark.parametrize("code", ERROR_CODES)
def test_a_section_says_cause_what_happened_and_what_to_do(code: str) -> None:
    section = error_section(code)
    assert re.search(r"Cause:\*\* \S.*\n- \*\*The record:\*\* \S.*\n- \*\*What to do:\*\* \S", section)


@pytest.mark.parametrize(
    ("code", "exit_code", "told"),
    [
        ("state_too_long", 0, "### state_too_long"),
        ("EngineError", 0, "### EngineError"),
        ("state_to_long", 2, "did you mean state_too_long"),
        ("zzz", 2, "`slotstream errors` lists all"),
    ],
)
def test_a_code_or_an_error_s_name_is_looked_up(
    capsys: pytest.CaptureFixture[str], code: str, exit_code: int, told: str
) -> None:
    assert main(["errors", code]) == exit_code
    assert told in "".join(capsys.readouterr())


def test_errors_that_blame_no_record_are_on_the_page_with_their_exit_codes() -> None:
    page = error_page()
    assert "| `OutputSchemaRefused` |" in page
    assert re.search(r"`DeadLetterLimitReached` \|.* \| 4 \|", page)
    assert "`EngineCrash` |" not in page
