"""The loop that every real engine runs on, with readers that do what the test says."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for

import pytest

from slotstream.operators.engines.protocol import Engine, EngineInfo, ReadRequest, ReadResult
from slotstream.operators.engines.read_loop import ReadLoop
from slotstream.schemas.errors import EngineError, EngineNotCapable, StateTooLong

INFO = EngineInfo("fake", "1", "test", "none", 1000, 64, 100)
WAIT_S = 10.0


def request(number: int = 0) -> ReadRequest:
    return ReadRequest((number,), (1,), (0,), ((1,),))


def result(number: int) -> ReadResult:
    return ReadResult(((-float(number),),))


class FakeReader:
    """Answers with the prompt's number; `answer` may wait or raise instead."""

    def __init__(self, answer: Callable[[int], Awaitable[None]] | None = None) -> None:
        self._answer = answer
        self.started: list[int] = []
        self.reading: dict[int, threading.Event] = defaultdict(threading.Event)
        self.aborted = threading.Event()
        self.dead: str | None = None
        self.closes: list[str] = []

    async def read(self, request: ReadRequest) -> ReadResult:
        number = request.prompt_ids[0]
        self.started.append(number)
        self.reading[number].set()
        try:
            if self._answer is not None:
                await self._answer(number)
        except asyncio.CancelledError:
            self.aborted.set()
            raise
        return result(number)

    def failure(self) -> str | None:
        return self.dead

    def close(self) -> None:
        self.closes.append(threading.current_thread().name)


@pytest.fixture
def opened() -> Iterator[Callable[[FakeReader], ReadLoop]]:
    loops: list[ReadLoop] = []

    def _open(reader: FakeReader) -> ReadLoop:
        async def ready() -> FakeReader:
            return reader

        loop = ReadLoop(ready, INFO)
        loop.start(WAIT_S)
        loops.append(loop)
        return loop

    yield _open
    for loop in loops:
        loop.close()


async def forever(_: int) -> None:
    await asyncio.Event().wait()


def test_it_is_an_engine(opened: Callable[[FakeReader], ReadLoop]) -> None:
    engine = opened(FakeReader())
    assert isinstance(engine, Engine)
    assert engine.info is INFO


def test_futures_come_in_the_order_of_the_requests(opened: Callable[[FakeReader], ReadLoop]) -> None:
    engine = opened(FakeReader())
    futures = engine.submit([request(n) for n in range(50)])
    assert [future.result(WAIT_S) for future in futures] == [result(n) for n in range(50)]
    assert engine.finished == 50


def test_reads_of_many_threads_are_all_answered(opened: Callable[[FakeReader], ReadLoop]) -> None:
    engine = opened(FakeReader())
    with ThreadPoolExecutor(8) as pool:
        futures = list(pool.map(lambda n: engine.submit([request(n)])[0], range(800)))
    assert [future.result(WAIT_S) for future in futures] == [result(n) for n in range(800)]


def test_what_waits_for_the_loop_wakes_it_once(
    opened: Callable[[FakeReader], ReadLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, free = threading.Event(), threading.Event()

    async def hold(number: int) -> None:
        if number == 0:
            busy.set()
            free.wait(WAIT_S)  # blocks the whole loop, as a slow step of its work would

    engine = opened(FakeReader(hold))
    first = engine.submit([request(0)])
    assert busy.wait(WAIT_S)
    wakes: list[object] = []
    loop = engine._loop
    assert loop is not None
    wake = loop.call_soon_threadsafe

    def counted(callback: Callable[[], None]) -> None:
        wakes.append(callback)
        wake(callback)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    futures = [engine.submit([request(n)])[0] for n in range(1, 101)]
    free.set()
    assert len(wait_for(first + futures, WAIT_S).done) == 101
    assert len(wakes) == 1


def test_cancelling_a_future_aborts_its_read_and_no_other(opened: Callable[[FakeReader], ReadLoop]) -> None:
    reader = FakeReader(forever)
    engine = opened(reader)
    stays, goes = engine.submit([request(1), request(2)])
    assert reader.reading[2].wait(WAIT_S)
    assert goes.cancel()
    assert reader.aborted.wait(WAIT_S)
    assert not stays.done()
    assert engine.finished == 0


def test_a_future_cancelled_before_the_loop_sees_it_is_never_read(opened: Callable[[FakeReader], ReadLoop]) -> None:
    busy, free = threading.Event(), threading.Event()

    async def hold(number: int) -> None:
        if number == 0:
            busy.set()
            free.wait(WAIT_S)

    reader = FakeReader(hold)
    engine = opened(reader)
    engine.submit([request(0)])
    assert busy.wait(WAIT_S)
    cancelled, last = engine.submit([request(1), request(2)])
    cancelled.cancel()
    free.set()
    assert not wait_for([cancelled, last], WAIT_S).not_done
    assert last.result() == result(2)
    assert reader.started == [0, 2]


@pytest.mark.parametrize("error", [EngineError("lost a mark"), StateTooLong("too long"), EngineNotCapable("no")])
def test_an_error_of_the_tree_reaches_its_future_as_it_is(
    opened: Callable[[FakeReader], ReadLoop], error: Exception
) -> None:
    async def fails(number: int) -> None:
        if number == 1:
            raise error

    engine = opened(FakeReader(fails))
    bad, good = engine.submit([request(1), request(2)])
    assert bad.exception(WAIT_S) is error
    assert good.result(WAIT_S) == result(2)
    assert engine.submit([request(3)])[0].result(WAIT_S) == result(3)


def test_any_other_error_is_the_engines_fault(opened: Callable[[FakeReader], ReadLoop]) -> None:
    async def fails(_: int) -> None:
        raise ValueError("bad batch")

    error = opened(FakeReader(fails)).submit([request()])[0].exception(WAIT_S)
    assert isinstance(error, EngineError)
    assert "ValueError: bad batch" in str(error)
    assert isinstance(error.__cause__, ValueError)


def test_a_dead_engine_fails_what_is_in_flight_and_takes_no_more(opened: Callable[[FakeReader], ReadLoop]) -> None:
    async def dies(number: int) -> None:
        if number != 1:
            await forever(number)
        reader.dead = "its process ended"
        raise RuntimeError("connection lost")

    reader = FakeReader(dies)
    engine = opened(reader)
    futures = engine.submit([request(2), request(1), request(3)])
    assert all(isinstance(future.exception(WAIT_S), EngineError) for future in futures)
    engine._thread.join(WAIT_S)
    assert reader.closes == ["slotstream-fake"]  # what it held is freed without anyone closing it
    with pytest.raises(EngineError, match="it died: its process ended"):
        engine.submit([request()])


def test_closing_fails_what_is_in_flight_and_closes_the_reader_on_its_thread(
    opened: Callable[[FakeReader], ReadLoop],
) -> None:
    reader = FakeReader(forever)
    engine = opened(reader)
    futures = engine.submit([request(1), request(2)])
    engine.close()
    engine.close()
    assert all(isinstance(future.exception(WAIT_S), EngineError) for future in futures)
    assert reader.closes == ["slotstream-fake"]
    with pytest.raises(EngineError, match="it is closed"):
        engine.submit([request()])


def test_closing_from_a_futures_callback_does_not_hang(opened: Callable[[FakeReader], ReadLoop]) -> None:
    engine = opened(FakeReader())
    closed = threading.Event()

    def close(_: "Future[ReadResult]") -> None:
        engine.close()
        closed.set()

    engine.submit([request()])[0].add_done_callback(close)
    assert closed.wait(WAIT_S)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EngineNotCapable("old"), EngineNotCapable),
        (ValueError("no memory"), EngineError),
        (TimeoutError(), EngineError),
        (SystemExit(1), EngineError),
    ],
)
def test_a_reader_that_cannot_open_stops_the_start(error: BaseException, expected: type[Exception]) -> None:
    async def fails() -> FakeReader:
        raise error

    engine = ReadLoop(fails, INFO)
    with pytest.raises(expected) as raised:
        engine.start(WAIT_S)
    assert "engine.start_timeout_s" not in str(raised.value)
    with pytest.raises(EngineError, match="takes no reads"):
        engine.submit([request()])


def test_a_start_that_takes_too_long_is_given_up_and_what_opens_late_is_closed() -> None:
    late = threading.Event()
    reader = FakeReader()

    async def slow() -> FakeReader:
        late.wait(WAIT_S)
        return reader

    engine = ReadLoop(slow, INFO)
    with pytest.raises(EngineError, match=r"engine.start_timeout_s"):
        engine.start(0.01)
    late.set()
    engine._thread.join(WAIT_S)
    assert reader.closes == ["slotstream-fake"]


def test_an_engine_that_was_never_started_takes_no_reads() -> None:
    async def never() -> FakeReader:
        raise AssertionError

    with pytest.raises(EngineError, match="not started"):
        ReadLoop(never, INFO).submit([request()])
