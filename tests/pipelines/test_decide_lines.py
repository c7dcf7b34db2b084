"""`slotstream decide`: one answer a line, in the same order, and a bad line is a dead answer."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slotstream.operators.decider import Decider
from slotstream.operators.engines import host
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import ReadRequest, ReadResult
from slotstream.operators.testing import HeldEngine, InstantEngine, hashed_read
from slotstream.pipelines.decide_lines import answer_of, decide_files, decide_lines, lines_or_pause
from slotstream.schemas.errors import EngineError
from tests.examples import CHOICE, NOUL, SCORE, example_plan, example_schema
from tests.pipelines.stream import COMMAND
from tests.tiny_tokenizer import write_tiny_tokenizer

SCHEMA = example_schema({"refund": NOUL, "team": CHOICE, "anger": SCORE})
REFUSING = example_schema({"refund": {**NOUL, "thresholds": {"probability": 0.95}}})


def decider(schema: Any = SCHEMA, engine: InstantEngine | None = None, *, in_flight: int = 8) -> Decider:
    return Decider(example_plan(schema), engine or InstantEngine(), max_in_flight=in_flight, read_timeout_s=5)


def answers(lines: Iterable[bytes | None], schema: Any = SCHEMA) -> list[dict[str, Any]]:
    return [answer_of(outcome) for outcome in decide_lines(lines, schema, decider(schema), name="stdin")]


def test_an_answer_has_exactly_the_documented_keys() -> None:
    (answer,) = answers([b'{"text": "hello"}'])
    assert list(answer) == ["route", "labels", "reasons", "error"]
    assert answer["route"] == "decided"
    assert answer["reasons"] == []
    assert answer["error"] is None
    assert list(answer["labels"]) == ["refund", "team", "anger"]
    for label in answer["labels"].values():
        assert list(label) == ["value", "probability", "mass", "margin", "entropy", "probabilities"]
    assert isinstance(answer["labels"]["refund"]["value"], bool)
    assert answer["labels"]["team"]["value"] in ("refund", "card_lost", "other")
    assert 0 <= answer["labels"]["anger"]["value"] <= 2
    assert list(answer["labels"]["anger"]["probabilities"]) == ["calm", "cross", "furious"]


def test_what_is_not_certain_enough_says_why() -> None:
    (answer,) = answers([b'{"text": "hello"}'], REFUSING)
    assert answer["route"] == "review"
    (reason,) = answer["reasons"]
    assert (reason["question"], reason["metric"], reason["threshold"]) == ("refund", "probability", 0.95)


BAD = [
    (b"not json\n", "json_invalid"),
    (b"\n", "line_blank"),
    (b" \t\r\n", "line_blank"),
    (b"", "line_blank"),
    (b"[1, 2]\n", "json_not_an_object"),
    (b'"text"\n', "json_not_an_object"),
    (b"\xff\xfe\n", "json_invalid_utf8"),
    (b'{"other": 1}\n', "state_field_missing"),
    (b'{"text": null}\n', "state_empty"),
    (b'{"text": "a", "text": "b"}\n', "json_duplicate_key"),
    (b'{"text": "\\ud800"}\n', "json_lone_surrogate"),
    (b"[" * 100_000 + b"\n", "json_too_deep"),
    (b'{"text": "' + b"word " * 20_000 + b'"}\n', "state_too_long"),
]


@pytest.mark.parametrize(("line", "code"), BAD, ids=[code for _, code in BAD])
def test_a_bad_line_is_a_dead_answer_and_its_neighbours_are_decided(line: bytes, code: str) -> None:
    first, dead, last = answers([b'{"text": "a"}\n', line, b'{"text": "b"}\n'])
    assert (first["route"], last["route"]) == ("decided", "decided")
    assert (dead["route"], dead["labels"], dead["reasons"]) == ("dead", {}, [])
    assert dead["error"]["code"] == code
    assert "word word" not in dead["error"]["message"]


def test_a_known_answer_may_stand_in_the_record() -> None:
    (answer,) = answers([b'{"text": "hello", "refund": true, "decision_id": "mine"}'])
    assert answer["route"] == "decided"


def test_answers_come_in_the_order_of_the_lines() -> None:
    lines = [b'{"text": "%d"}' % n if n % 3 else b"bad" for n in range(100)]
    assert ["dead" if n % 3 == 0 else "decided" for n in range(100)] == [a["route"] for a in answers(lines)]
    assert answers(lines) == answers(lines)


def test_lines_are_not_read_ahead_of_what_the_engine_holds() -> None:
    engine, asked = HeldEngine(), 0

    def lines() -> Iterator[bytes]:
        nonlocal asked
        for number in range(100):
            asked = number + 1
            yield b'{"text": "%d"}' % number

    outcomes = decide_lines(lines(), SCHEMA, decider(engine=engine, in_flight=4), name="stdin")
    first = threading.Thread(target=lambda: next(outcomes), daemon=True)
    first.start()
    while len(engine.held) < 4:
        time.sleep(0.001)
    assert asked <= 5
    engine.finish(4)
    first.join(timeout=5)
    assert not first.is_alive()
    assert asked <= 5


def test_a_pause_in_the_input_brings_the_answers_that_are_in_flight() -> None:
    seen: list[str] = []

    def lines() -> Iterator[bytes | None]:
        yield b'{"text": "a"}'
        yield None
        seen.append("after the pause")
        yield b'{"text": "b"}'

    for _ in decide_lines(lines(), SCHEMA, decider(), name="stdin"):
        seen.append("answer")
    assert seen == ["answer", "after the pause", "answer"]


def test_a_silent_stream_gives_one_pause_and_then_waits() -> None:
    more = threading.Event()

    def stream() -> Iterator[bytes]:
        yield b"1"
        more.wait(5)
        yield b"2"

    lines = lines_or_pause(stream(), pause_s=0.01)
    assert next(lines) == b"1"
    assert next(lines) is None
    more.set()
    assert next(lines) == b"2"
    assert [line for line in lines if line is not None] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    questions = {"questions": {"refund": NOUL, "team": CHOICE}, "state": "text", "name": "example"}
    (tmp_path / "questions.yaml").write_text(yaml.safe_dump(questions))
    write_tiny_tokenizer(tmp_path / "model")
    return tmp_path


def command(folder: Path, *arguments: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    fixed = ["decide", str(folder / "questions.yaml"), "--model", str(folder / "model"), "--engine", "instant"]
    return subprocess.run(
        [str(COMMAND), *fixed, *arguments], input=given, capture_output=True, timeout=120, check=False
    )


def test_the_command_reads_stdin_and_writes_only_answers_to_stdout(folder: Path) -> None:
    done = command(folder, given=b'{"text": "a"}\nbad\n{"text": "b"}')
    assert done.returncode == 0, done.stderr.decode()
    assert [json.loads(line)["route"] for line in done.stdout.splitlines()] == ["decided", "dead", "decided"]
    assert b"3 lines: 2 decided, 0 review, 1 dead" in done.stderr


def test_the_command_reads_and_writes_files(folder: Path) -> None:
    (folder / "in.jsonl").write_bytes(b'{"text": "a"}\n' * 50)
    done = command(folder, "--in", str(folder / "in.jsonl"), "--out", str(folder / "out.jsonl"))
    assert (done.returncode, done.stdout) == (0, b"")
    assert len((folder / "out.jsonl").read_bytes().splitlines()) == 50


def test_a_wrong_schema_ends_with_2_and_one_message(folder: Path) -> None:
    (folder / "questions.yaml").write_text("questions: {}\nstate: text")
    done = command(folder)
    assert done.returncode == 2
    assert b"asks at least one question" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [("nope", "there is no such folder"), ("a-file", "a file"), ("", "a folder without a config.json")],
)
def test_a_model_that_is_none_ends_with_2_and_one_message_before_anything_slow(
    folder: Path, name: str, told: str
) -> None:
    (folder / "a-file").write_bytes(b"")
    code = (
        "import sys\nfrom slotstream.pipelines import cli\ncode = cli.main(sys.argv[1:])\n"
        "slow = [name for name in ('vllm', 'torch', 'transformers', 'huggingface_hub') if name in sys.modules]\n"
        "sys.exit(f'imported {slow}' if slow else code)"
    )
    arguments = ["decide", str(folder / "questions.yaml"), "--model", str(folder / name)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith(f"slotstream: engine.model (decide: --model) is '{folder / name}', ")
    assert told in line


def test_a_missing_input_file_ends_with_2(folder: Path) -> None:
    done = command(folder, "--in", "no-such-file")
    assert done.returncode == 2
    assert b"--in no-such-file: No such file or directory" in done.stderr


def test_an_output_that_is_the_input_is_refused_and_kept(folder: Path) -> None:
    lines = folder / "lines.jsonl"
    lines.write_bytes(b'{"text": "a"}\n')
    done = command(folder, "--in", str(lines), "--out", str(lines))
    assert done.returncode == 2
    assert b"is the file that --in reads" in done.stderr
    assert lines.read_bytes() == b'{"text": "a"}\n'


def test_an_output_file_is_kept_when_the_model_is_refused(folder: Path) -> None:
    (folder / "model" / "tokenizer.json").unlink()
    (folder / "out.jsonl").write_bytes(b"precious")
    done = command(folder, "--out", str(folder / "out.jsonl"), given=b'{"text": "a"}')
    assert done.returncode == 2
    assert (folder / "out.jsonl").read_bytes() == b"precious"


def test_an_output_in_no_folder_is_refused(folder: Path) -> None:
    done = command(folder, "--out", str(folder / "nowhere" / "out.jsonl"))
    assert done.returncode == 2
    assert b"a file in a folder that exists is needed" in done.stderr


def test_a_person_who_types_gets_each_answer_before_the_next_line(folder: Path) -> None:
    fixed = ["decide", str(folder / "questions.yaml"), "--model", str(folder / "model"), "--engine", "instant"]
    with subprocess.Popen(
        [str(COMMAND), *fixed], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):
            process.stdin.write(b'{"text": "a"}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["route"] == "decided"
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_a_reader_that_leaves_ends_it_quietly(folder: Path) -> None:
    (folder / "in.jsonl").write_bytes(b'{"text": "a"}\n' * 20_000)
    fixed = ["decide", str(folder / "questions.yaml"), "--model", str(folder / "model"), "--engine", "instant"]
    with subprocess.Popen(
        [str(COMMAND), *fixed, "--in", str(folder / "in.jsonl")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()
        assert process.wait(timeout=60) == 141
    assert b"Traceback" not in told
    assert b"Exception ignored" not in told


def test_an_engine_that_dies_leaves_word_of_where_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def read(request: ReadRequest) -> ReadResult:
        nonlocal asked
        asked += 1
        if asked > 13:  # the three of the proof, and ten lines
            raise EngineError("it died")
        return hashed_read(request)

    monkeypatch.setattr(host, "open_engine", lambda _config: InstantEngine(read=read))
    (tmp_path / "schema.yaml").write_text(
        '{name: t, version: "1", state: text, questions: {urgent: {type: noul, instructions: "Soon?"}}}'
    )
    (tmp_path / "in.jsonl").write_bytes(b'{"text": "hello"}\n' * 50)
    config = EngineConfig(kind="instant", model=str(write_tiny_tokenizer(tmp_path / "model")), max_in_flight=1)
    with pytest.raises(EngineError, match=r"it died\. 10 lines are answered: go on with line 11"):
        decide_files(tmp_path / "schema.yaml", config, source=tmp_path / "in.jsonl", target=tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text().count("\n") == 10
