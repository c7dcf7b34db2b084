"""Every code that the source can put on a dead letter has a cause, a fate and an advice."""

import re
from pathlib import Path

import pytest

from slotstream.schemas import errors
from slotstream.schemas.error_codes import ERROR_CODES

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "operators", "pipelines")


def codes_of(source: str) -> set[str]:
    """Codes that a module's text gives to record errors."""
    found = re.findall(r'(?:\bcode=|\brefuse\(\s*|default_code(?:: ClassVar\[str\])? = )"([a-z0-9_]+)"', source)
    return {*found, *re.findall(r'"(avro_[a-z0-9_]+)"', source)}


def codes_in_the_source() -> set[str]:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    return set().union(*(codes_of(file.read_text(encoding="utf-8")) for file in files if file.name != "error_codes.py"))


def test_every_code_of_the_source_has_a_section_and_every_section_a_code() -> None:
    assert codes_in_the_source() == ERROR_CODES.keys()


@pytest.mark.parametrize(
    ("source", "codes"),
    [
        ('raise DecodeError("x", code="some_code")', {"some_code"}),
        ('refuse(\n    "avro_x", "y")', {"avro_x"}),
        ('default_code: ClassVar[str] = "a"\ndefault_code = "b"', {"a", "b"}),
        ('branch_index(3, "a union", "avro_out")', {"avro_out"}),
        ("code=error.code", set()),
    ],
)
def test_codes_are_found_however_they_are_given(source: str, codes: set[str]) -> None:
    assert codes_of(source) == codes


def test_a_classes_own_code_stands_under_that_class() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__ if name != "Stage"]
    for kind in kinds:
        if issubclass(kind, errors.RecordError):
            assert ERROR_CODES[kind.default_code].error is kind
