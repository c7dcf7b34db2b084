"""Fixtures of the operators' suites."""

import pytest

from slotstream.operators.plan import ReadPlan
from slotstream.operators.tokens import PlanTokenizer
from tests.examples import example_plan
from tests.tiny_tokenizer import tiny_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PlanTokenizer:
    """The tiny tokenizer: every mark is one token, nothing is missing."""
    return PlanTokenizer(tiny_tokenizer())


@pytest.fixture(scope="session")
def plan() -> ReadPlan:
    """One question of each type about the field `text`, one canvas."""
    return example_plan()
