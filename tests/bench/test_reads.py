"""The engine bench measures what it says, on engines whose answers are known."""

import json
import math
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from xml.etree import ElementTree

import pytest

from slotstream.operators.engines.capability import model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import ReadRequest, ReadResult
from slotstream.operators.engines.slot_read import check_request
from slotstream.operators.testing import INSTANT_INFO, InstantEngine
from tests.bench.reads.picture import draw, table
from tests.bench.reads.random_weights import MODEL_26B, model_folder, plugin_folder
from tests.bench.reads.report import agreement, bars
from tests.bench.reads.rows import CURVES, ROWS, Bench, curves, read_all
from tests.bench.reads.workload import DemoReads, Shape, SyntheticReads, mixed_shape

READS = SyntheticReads(INSTANT_INFO.vocab_size)


class CountingEngine(InstantEngine):
    """Remembers how many reads each submission held."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[int] = []

    def submit(self, requests: Sequence[ReadRequest]) -> list["Future[ReadResult]"]:
        self.submitted.append(len(requests))
        return super().submit(requests)


def test_every_read_is_answered_once_and_in_order_with_so_many_in_flight() -> None:
    engine = CountingEngine()
    requests = READS.reads(Shape(), 0, 20)
    phase = read_all(engine, requests, 8)
    assert engine.submitted[0] == 8
    assert sum(engine.submitted) == len(phase.latencies) == 20
    assert phase.results == [future.result() for future in InstantEngine().submit(requests)]


def test_equal_numbers_are_equal_reads_and_others_share_the_prefix_only() -> None:
    (one, other), (again,) = READS.reads(Shape(), 5, 2), READS.reads(Shape(), 5, 1)
    assert one == again
    assert one.prompt_ids[:256] == other.prompt_ids[:256]
    assert one.prompt_ids[256:] != other.prompt_ids[256:]
    assert one.mark_ids == other.mark_ids


@pytest.mark.parametrize("number", range(40))
def test_a_mixed_read_is_one_that_an_engine_serves(number: int) -> None:
    shape = mixed_shape(number, widest=64, longest=2048)
    (request,) = READS.reads(shape, number, 1)
    check_request(request, INSTANT_INFO)
    assert len(request.canvas_ids) <= 64
    assert len(request.prompt_ids) + len(request.canvas_ids) <= 2048


@pytest.mark.parametrize("row", ROWS)
def test_a_row_gives_figures(row: str) -> None:
    bench = Bench(InstantEngine(), READS, seconds=0.001, rounds=1, mixed=20, alone=5, equal=4)
    run, _ = ROWS[row]
    figures = run(bench)
    assert all(math.isfinite(value) for value in figures.values() if isinstance(value, float))
    assert figures["reads"] > 0
    assert (row == "answers") == bool(bench.answers)


def test_the_demo_s_reads_suit_the_checkpoint_that_ships() -> None:
    config = EngineConfig()
    info = model_facts(config).engine_info(name="x", version="1", path="none")
    for request in DemoReads(config, info).reads(Shape(), 0, 30):
        check_request(request, info)


def test_agreement_finds_flips_and_gaps() -> None:
    one = [[[-1.0, -2.0], [-0.5, -3.0]]]
    other = [[[-1.0, -2.0], [-3.0, -1.0]]]
    found = agreement(one, other)
    assert (found["reads"], found["slots"], found["flips"], found["largest_gap_nats"]) == (1, 2, 1, 2.5)
    assert agreement(one, one)["largest_change"] == 0.0


def test_a_bar_is_judged_only_where_both_sides_were_measured() -> None:
    ours = {"rows": {"in_flight_256": {"reads_s": 400.0}, "alone": {"p50_ms": 30.0}}}
    stock = {"rows": {"in_flight_256": {"reads_s": 250.0}, "alone": {"error": "it died"}}}
    found = {bar["what"]: bar["met"] for bar in bars({"ours": ours, "stock": stock}, on_cpu=False)}
    assert found == {
        "ours: reads/s over stock, cap lifted, 256 in flight": False,
        "ours: reads/s, 256 in flight": True,
    }


def test_the_picture_holds_every_point_of_every_curve() -> None:
    bench = Bench(InstantEngine(), READS, seconds=0.001, rounds=1)
    found = curves(bench)
    picture = ElementTree.fromstring(draw({"ours": found, "ours-fp8": found}, "a < b"))
    points = sum(len(found[axis]) for axis in CURVES)
    assert len(picture.findall(".//{http://www.w3.org/2000/svg}circle")) == 2 * points > 40
    assert table({"ours": found}, "a").count("| ours |") == points


def test_the_table_and_the_picture_of_the_results_hold_the_figures_of_the_results() -> None:
    results = Path(__file__).parent / "results"
    run = json.loads((results / "engine_h200.json").read_text(encoding="utf-8"))["curves"]
    its = {name: engine["rows"]["curves"] for name, engine in run["engines"].items()}
    shown = (results / "engine_h200_curves.md").read_text(encoding="utf-8")
    assert shown == table(its, shown.splitlines()[0])
    picture = (results / "engine_h200_curves.svg").read_text(encoding="utf-8")
    assert picture == draw(its, ElementTree.fromstring(picture)[-1].text or "")


def test_the_weightless_folder_is_a_checkpoint_of_real_size(tmp_path: Path) -> None:
    facts = model_facts(EngineConfig(model=str(model_folder(tmp_path / "26b", MODEL_26B)), load_format="dummy"))
    assert facts.vocab_size == 262_144
    assert json.loads((tmp_path / "26b" / "config.json").read_text())["text_config"]["num_experts"] == 128


def test_the_weights_plugin_is_an_entry_point_of_a_folder_of_its_own(tmp_path: Path) -> None:
    plugin_folder(tmp_path)
    (entry_points,) = tmp_path.glob("*.dist-info/entry_points.txt")
    assert entry_points.read_text().splitlines()[-1].endswith("= tests.bench.reads.random_weights:scale_dummy_weights")
