"""The real vLLM engine on the CPU with a tiny model of random weights."""

import math
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import replace

import pytest

from slotstream.operators.engines.probe import default_probe, probe
from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from slotstream.operators.engines.warm_up import batch_reads, warm_up_batches
from slotstream.schemas.errors import EngineNotCapable, StateTooLong
from tests.operators.engines.conftest import MAX_MODEL_LEN, MAX_NUM_SEQS, RequestMaker
from tests.operators.engines.tiny_checkpoint import VOCAB_SIZE

pytestmark = [pytest.mark.engine, pytest.mark.slow]

WAIT_S = 300.0


def read(engine: Engine, requests: Sequence[ReadRequest]) -> list[ReadResult]:
    """All of them in flight at once."""
    return [future.result(WAIT_S) for future in engine.submit(requests)]


def read_alone(engine: Engine, requests: Sequence[ReadRequest]) -> list[ReadResult]:
    return [engine.submit([request])[0].result(WAIT_S) for request in requests]


def largest_change(a: Sequence[ReadResult], b: Sequence[ReadResult]) -> float:
    """In probability."""
    return max(
        abs(math.exp(x) - math.exp(y))
        for one, other in zip(a, b, strict=True)
        for row, other_row in zip(one.log_probs, other.log_probs, strict=True)
        for x, y in zip(row, other_row, strict=True)
    )


def test_it_says_what_it_is(vllm_engine: Engine) -> None:
    assert isinstance(vllm_engine, Engine)
    info = vllm_engine.info
    assert (info.name, info.model) == ("vllm", "tiny")
    assert info.path.startswith("slot path")
    assert (info.max_model_len, info.canvas_length, info.vocab_size) == (MAX_MODEL_LEN, 32, VOCAB_SIZE)


def test_a_probe_passes_and_counts_as_reads(vllm_engine: Engine) -> None:
    before = vllm_engine.finished
    probe(vllm_engine)
    assert vllm_engine.finished == before + 3


def test_the_whole_vocabulary_sums_to_one(vllm_engine: Engine, make_request: RequestMaker) -> None:
    """Five engine requests, one softmax denominator: log-probabilities are over the vocabulary, temperature 1."""
    request = make_request(40, 8, 2, VOCAB_SIZE)
    for row in read(vllm_engine, [request])[0].log_probs:
        assert len(row) == VOCAB_SIZE
        assert math.fsum(map(math.exp, row)) == pytest.approx(1.0, abs=1e-5)


def test_the_marks_asked_do_not_change_a_value(vllm_engine: Engine, make_request: RequestMaker) -> None:
    many = make_request(40, 16, 3, 200)
    few = replace(many, mark_ids=tuple(marks[150:160] for marks in many.mark_ids))
    rows = read(vllm_engine, [many])[0].log_probs
    expected = ReadResult(tuple(row[150:160] for row in rows))
    assert largest_change(read(vllm_engine, [few]), [expected]) <= 1e-6


def test_noise_in_the_slots_changes_the_read(vllm_engine: Engine, make_request: RequestMaker) -> None:
    request = make_request(40, 16, 1, 20)
    slot = request.slots[0]
    other_noise = list(request.canvas_ids)
    other_noise[slot] = (other_noise[slot] + 1) % VOCAB_SIZE
    pair = read(vllm_engine, [request, replace(request, canvas_ids=tuple(other_noise))])
    assert largest_change(pair[:1], pair[1:]) > 1e-4


def test_a_read_alone_and_in_a_flood_gives_the_same_values(vllm_engine: Engine, make_request: RequestMaker) -> None:
    """More reads than a step holds, every canvas width, prompts up to the limit: nothing is cut, nothing leaks."""
    requests = [make_request(MAX_MODEL_LEN - 32, 32, 3, 10) for _ in range(4)]
    requests += [make_request(10 + 7 * n, 1 + n % 32, 1, 5) for n in range(2 * MAX_NUM_SEQS)]
    flood = read(vllm_engine, requests * 2)
    assert largest_change(flood[: len(requests)], flood[len(requests) :]) <= 1e-6
    assert largest_change(read_alone(vllm_engine, requests[:12]), flood[:12]) <= 1e-6


def test_a_warm_prefix_cache_does_not_change_a_value(vllm_engine: Engine, make_request: RequestMaker) -> None:
    """vLLM's blocks hold 128 tokens here: the second read finds its first 384 tokens in the cache."""
    request = make_request(400, 32, 4, 20)
    cold, warm = read_alone(vllm_engine, [request, request])
    other_tail = replace(request, prompt_ids=(*request.prompt_ids[:390], *range(10, 20)))
    tail = read_alone(vllm_engine, [other_tail])
    assert largest_change([cold], [warm]) <= 1e-6
    assert largest_change([cold], tail) > 1e-6


def test_a_prompt_at_the_limit_is_read_and_one_token_more_is_refused(
    vllm_engine: Engine, make_request: RequestMaker
) -> None:
    fits, too_long, after = vllm_engine.submit(
        [
            make_request(MAX_MODEL_LEN - 32, 32, 1, 2),
            make_request(MAX_MODEL_LEN - 31, 32, 1, 2),
            make_request(9, 4, 1, 2),
        ]
    )
    assert isinstance(too_long.exception(WAIT_S), StateTooLong)
    assert len(fits.result(WAIT_S).log_probs[0]) == len(after.result(WAIT_S).log_probs[0]) == 2


def test_a_canvas_wider_than_served_is_refused(vllm_engine: Engine, make_request: RequestMaker) -> None:
    with pytest.raises(EngineNotCapable, match=r"engine.canvas_length"):
        read(vllm_engine, [make_request(10, 33, 1, 2)])


def test_an_end_token_before_the_last_slot_does_not_end_the_read(
    vllm_engine: Engine, reference_engine: Engine, make_request: RequestMaker
) -> None:
    """The most probable token of an earlier position is <eos>; vLLM must go on to the slot."""
    marks = (tuple(range(VOCAB_SIZE)),) * 15
    for _ in range(300):
        request = replace(make_request(12, 16, 1, 1), slots=tuple(range(15)), mark_ids=marks)
        rows = read(reference_engine, [request])[0].log_probs
        if any(max(range(VOCAB_SIZE), key=row.__getitem__) == 1 for row in rows):
            break
    else:
        pytest.fail("no canvas of 300 has <eos> as an arg max")
    last = replace(request, slots=(15,), mark_ids=(tuple(range(100)),))
    assert largest_change(read(vllm_engine, [last]), read(reference_engine, [last])) <= 1e-5


def test_cancelled_reads_are_aborted_and_the_others_finish(vllm_engine: Engine, make_request: RequestMaker) -> None:
    before = vllm_engine.finished
    futures = vllm_engine.submit([make_request(100, 32, 1, 2) for _ in range(4 * MAX_NUM_SEQS)])
    assert futures[0].result(WAIT_S).log_probs
    for future in futures:
        future.cancel()
    assert not wait(futures, WAIT_S).not_done
    done = sum(not future.cancelled() for future in futures)
    assert done < len(futures) * 3 / 4
    read(vllm_engine, [default_probe(vllm_engine.info)])
    assert vllm_engine.finished - before <= done + 1


def test_it_counts_its_reads_its_steps_and_what_the_prefix_cache_held(
    vllm_engine: Engine, make_request: RequestMaker
) -> None:
    before = vllm_engine.stats()
    prefix = make_request(256, 1, 1, 1).prompt_ids
    read_alone(vllm_engine, [make_request(300, 32, 2, 3, prefix=prefix) for _ in range(4)])
    found = vllm_engine.stats()
    assert (found.reads - before.reads, found.in_flight) == (4, 0)
    assert found.reads_per_s > 0
    assert found.prefix_hit_rate is not None
    assert 0 < found.prefix_hit_rate < 1
    assert found.step_ms is not None
    assert found.queue_ms is not None
    assert found.tokens_per_read is not None
    assert found.slowest_step_ms is not None
    assert 0 < found.step_ms <= found.slowest_step_ms
    assert 0 <= found.queue_ms < 10_000


def test_reads_in_flight_are_counted_until_they_are_answered(vllm_engine: Engine, make_request: RequestMaker) -> None:
    futures = vllm_engine.submit([make_request(100, 32, 1, 2) for _ in range(2 * MAX_NUM_SEQS)])
    assert futures[0].result(WAIT_S).log_probs
    assert 0 < vllm_engine.stats().in_flight < len(futures)
    assert not wait(futures, WAIT_S).not_done
    read(vllm_engine, [default_probe(vllm_engine.info)])
    assert vllm_engine.stats().in_flight == 0


def test_it_takes_every_read_of_a_warm_up(vllm_engine: Engine) -> None:
    info = vllm_engine.info
    batches = warm_up_batches(info, in_flight=3, budget=1024)
    results = read(vllm_engine, [request for batch in batches for request in batch_reads(batch, info)])
    assert len(results) == sum(batch.reads for batch in batches)
    assert all(math.isfinite(value) for result in results for row in result.log_probs for value in row)
