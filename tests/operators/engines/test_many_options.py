"""A question of 255 options on the real engine: one canvas, one slot, every option a share of one distribution."""

import math
from dataclasses import replace
from itertools import product
from string import ascii_lowercase, ascii_uppercase

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from slotstream.operators.engines.slot_read import MAX_MARKS, mark_groups
from slotstream.operators.plan import ReadPlan, compile_plan
from slotstream.operators.reading import labels_from_reads
from slotstream.operators.tokens import PlanTokenizer
from tests.examples import choice_of, example_schema
from tests.operators.engines.conftest import MAX_MODEL_LEN
from tests.operators.engines.tiny_checkpoint import SLIDING_WINDOW, VOCAB_SIZE
from tests.tiny_tokenizer import CONTROL

pytestmark = [pytest.mark.engine, pytest.mark.slow]

OPTIONS = 255
STATES = ["money back", "card", "?", "Grüße", "a b c d e f"]


def tokenizer_with_marks() -> PlanTokenizer:
    """255 letters and pairs are one token each behind a space, and all ids are below the tiny model's."""
    vocab = {token: number for number, token in enumerate(CONTROL)}
    for byte in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab[byte] = len(vocab)
    merges = []
    pairs = list(map("".join, product(ascii_uppercase, repeat=2)))[: OPTIONS - 52]
    for word in [*ascii_uppercase, *ascii_lowercase, *pairs]:
        spelled = f"Ġ{word}"
        merges.append((spelled[:-1], spelled[-1]))
        vocab[spelled] = len(vocab)
    assert len(vocab) <= VOCAB_SIZE
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    return PlanTokenizer(tokenizer)


@pytest.fixture(scope="module")
def plan() -> ReadPlan:
    """In the short wording: prompt and canvas stay inside the model's window, where both engines look at the same."""
    return compile_plan(
        example_schema({"topic": choice_of(OPTIONS)}, mass_floor=0),
        tokenizer_with_marks(),
        style="compact",
        max_model_len=MAX_MODEL_LEN,
        canvas_length=32,
        vocab_size=VOCAB_SIZE,
    )


@pytest.fixture(scope="module")
def requests(plan: ReadPlan) -> list[ReadRequest]:
    return [request for state in STATES for request in plan.reads(state).requests]


def read(engine: Engine, requests: list[ReadRequest]) -> list[ReadResult]:
    return [future.result(300) for future in engine.submit(requests)]


def test_a_record_takes_one_read_of_more_marks_than_vllm_reports_at_once(
    plan: ReadPlan, requests: list[ReadRequest]
) -> None:
    assert plan.reads_a_record == 1
    for request in requests:
        assert [len(set(marks)) for marks in request.mark_ids] == [OPTIONS]
        assert len(request.prompt_ids) + len(request.canvas_ids) <= SLIDING_WINDOW
        assert [len(group) for group in mark_groups(request)] == [MAX_MARKS, OPTIONS - MAX_MARKS]


def test_every_option_has_a_log_probability_and_together_they_leave_room_for_the_rest(
    vllm_engine: Engine, plan: ReadPlan, requests: list[ReadRequest]
) -> None:
    whole = [replace(request, mark_ids=(tuple(range(VOCAB_SIZE)),)) for request in requests]
    for request, one, other in zip(requests, read(vllm_engine, requests), read(vllm_engine, whole), strict=True):
        (marks,), (options,), (vocabulary,) = request.mark_ids, one.log_probs, other.log_probs
        assert len(options) == OPTIONS
        assert all(-100 < option < 0 for option in options)
        assert options == pytest.approx([vocabulary[mark] for mark in marks], abs=1e-6)
        assert 0 < math.fsum(map(math.exp, options)) < 1
        assert math.fsum(map(math.exp, vocabulary)) == pytest.approx(1, abs=1e-5)
        (label,) = labels_from_reads(plan, [one])
        assert len(label.probabilities) == OPTIONS
        assert math.fsum(label.probabilities.values()) == pytest.approx(1, abs=OPTIONS * 0.5e-6)
        assert label.probability == max(label.probabilities.values()) == label.probabilities[str(label.value)]


def test_every_option_agrees_with_the_reference(
    vllm_engine: Engine, reference_engine: Engine, requests: list[ReadRequest]
) -> None:
    pairs = [
        (a, b)
        for one, other in zip(read(vllm_engine, requests), read(reference_engine, requests), strict=True)
        for row, other_row in zip(one.log_probs, other.log_probs, strict=True)
        for a, b in zip(row, other_row, strict=True)
    ]
    assert len(pairs) == len(STATES) * OPTIONS
    assert max(abs(a - b) for a, b in pairs) <= 1e-4, "in log-probability"
    assert max(math.exp(a) for a, _ in pairs) > 20 / VOCAB_SIZE, "the distributions are not flat"
