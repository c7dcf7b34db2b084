"""How a fused step's requests become attention's sequences; arrays alone, no engine."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.engines.slot_path.sequences import split_sequences

# A request of a step: prompt tokens and canvas tokens that it computes.
REQUESTS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 64)).filter(sum), min_size=1, max_size=12)


@given(REQUESTS)
def test_every_request_keeps_its_tokens_and_a_fused_one_is_two_sequences(requests: list[tuple[int, int]]) -> None:
    starts = np.cumsum([0, *(tail + width for tail, width in requests)])
    widths = np.array([width for _, width in requests])
    fused = np.array([bool(tail and width) for tail, width in requests])
    found = split_sequences(starts, widths, fused)

    expected = []
    for number, (tail, width) in enumerate(requests):
        if tail and width:
            expected += [(number, tail, width, 1), (number, width, 0, 0)]  # the tail ends a canvas before its request
        else:
            expected.append((number, tail + width, 0, -1))
    lengths = np.diff(found.start)
    assert list(zip(found.request, lengths, found.shorter, found.causal, strict=True)) == expected
    assert found.start[0] == 0
    assert found.start[-1] == starts[-1]


def test_a_tail_looks_back_alone_and_its_canvas_both_ways() -> None:
    found = split_sequences(np.array([0, 16, 30, 50]), np.array([16, 8, 0]), np.array([False, True, False]))
    assert found.request.tolist() == [0, 1, 1, 2]
    assert found.start.tolist() == [0, 16, 22, 30, 50]
    assert found.causal.tolist() == [-1, 1, 0, -1]
    assert found.shorter.tolist() == [0, 8, 0, 0]
