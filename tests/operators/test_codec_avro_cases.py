"""The awkward values of tests/cases/avro_inputs.json: decided with their own bytes in front, or dead with a code."""

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import httpx
import pytest

from slotstream.operators.registry import Registry, RegistryConfig

CASES_DIR = Path(__file__).resolve().parents[1] / "cases"
CASES: list[dict[str, Any]] = json.loads((CASES_DIR / "avro_inputs.json").read_text(encoding="utf-8"))["cases"]

DECIDED = None
# What becomes of each case: when the state wants none of its fields, and when it wants all of them. Java Avro 1.12.1
# reads every value that is decided here, under the derived schema and (but for envelopes) under the input's.
EXPECTED: dict[str, tuple[str | None, str | None]] = {
    "union int|long (2nd branch, small value)": (DECIDED, DECIDED),
    "union float|double": (DECIDED, DECIDED),
    "union string|enum": (DECIDED, DECIDED),
    "union of 2 records same shape": (DECIDED, DECIDED),
    "union of records, 2nd superset": (DECIDED, DECIDED),
    "union map|record": (DECIDED, DECIDED),
    "union null|fixed|bytes": (DECIDED, DECIDED),
    "union date|int logical": (DECIDED, DECIDED),
    "decimal bytes non-minimal (0x00 0x01)": (DECIDED, DECIDED),
    "decimal precision overflow": (DECIDED, DECIDED),
    "decimal scale > precision (invalid -> ignored)": (DECIDED, DECIDED),
    "timestamp-millis year 10000": (DECIDED, DECIDED),
    "timestamp-micros min long": (DECIDED, DECIDED),
    "time-micros 25h (out of range)": (DECIDED, DECIDED),
    "date year 0": (DECIDED, DECIDED),
    "uuid string invalid": (DECIDED, DECIDED),
    "uuid string upper case": (DECIDED, DECIDED),
    "uuid fixed16": (DECIDED, DECIDED),
    "unknown logicalType": (DECIDED, DECIDED),
    # Every reader skips it, none agrees on its value.
    "string with invalid utf-8": (DECIDED, "avro_invalid_utf8"),
    "string with NUL + surrogate pair": (DECIDED, DECIDED),
    "NaN payload double": (DECIDED, DECIDED),
    "enum index out of range": ("avro_enum_out_of_range", "avro_enum_out_of_range"),
    # Java reads false, fastavro reads true: passed on, but never read.
    "bool byte 2": (DECIDED, "avro_invalid_boolean"),
    "map duplicate keys": (DECIDED, DECIDED),
    "array two blocks": (DECIDED, DECIDED),
    "non-minimal varint": (DECIDED, DECIDED),
    "truncated": ("avro_truncated", "avro_truncated"),
    "recursive 3 deep": (DECIDED, DECIDED),
    "recursive 2000 deep": ("avro_too_deep", "avro_too_deep"),
    "huge string length 2^40": ("avro_truncated", "avro_truncated"),
    "array of null, count 2^25 (8 bytes)": ("avro_count_too_large", "avro_count_too_large"),
    # Java refuses the schema: nothing could be registered that keeps it.
    "field default invalid for type": ("avro_schema_invalid", "avro_schema_invalid"),
    "aliases on record+field": (DECIDED, DECIDED),
    "name with dot, no namespace": (DECIDED, DECIDED),
    # Outside the specification, but Java takes letters of any script, and so do its readers.
    "non-ascii field name (invalid)": (DECIDED, DECIDED),
    "top-level array": (DECIDED, DECIDED),
    "empty record (0 bytes)": (DECIDED, DECIDED),
    "field named like ours": (DECIDED, DECIDED),
    "doc + custom props": (DECIDED, DECIDED),
}
ENVELOPES = {"recursive 3 deep", "top-level array"}
# fastavro refuses these for their logical types or their text; Java reads them.
NOT_FOR_FASTAVRO = {
    "decimal scale > precision (invalid -> ignored)",
    "timestamp-millis year 10000",
    "timestamp-micros min long",
    "time-micros 25h (out of range)",
    "date year 0",
    "uuid string invalid",
    "string with invalid utf-8",
}
DECIDED_CASES = [case for case in CASES if EXPECTED[case["name"]][0] is DECIDED]

Outcome = Mapping[str, str]


def run_in_child(inputs: list[dict[str, Any]]) -> list[Outcome]:
    """The outcomes of tests/cases/avro_child.py, which may use 1 GiB of memory."""
    lines = "".join(json.dumps(given) + "\n" for given in inputs)
    command = [sys.executable, str(CASES_DIR / "avro_child.py")]
    child = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, f"exit {child.returncode}: {child.stderr[-2000:]}"
    return [json.loads(line) for line in child.stdout.splitlines()]


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, bool], Outcome]:
    """(case name, all fields wanted) to what became of it; one process for all."""
    keys, inputs = [], []
    for case in CASES:
        fields = case["schema"].get("fields", [])
        for wanted in (False, True):
            keys.append((case["name"], wanted))
            paths = [field["name"] for field in fields] if wanted else []
            inputs.append({"schema": json.dumps(case["schema"]), "datum": case["datum_hex"], "paths": paths})
    return dict(zip(keys, run_in_child(inputs), strict=True))


def test_every_case_has_an_expected_outcome() -> None:
    assert {case["name"] for case in CASES} == EXPECTED.keys()


@pytest.mark.parametrize("wanted", [False, True], ids=["unread", "read"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_case_is_decided_with_its_own_bytes_or_dead_with_its_code(
    case: dict[str, Any], wanted: bool, outcomes: dict[tuple[str, bool], Outcome]
) -> None:
    outcome = outcomes[case["name"], wanted]
    assert outcome.get("code") == EXPECTED[case["name"]][wanted]
    if "code" not in outcome:
        assert outcome["value"].startswith("0000000002" + case["datum_hex"])


@pytest.mark.parametrize("case", DECIDED_CASES, ids=lambda case: case["name"])
def test_the_output_schema_is_the_input_schema_with_fields_behind(
    case: dict[str, Any], outcomes: dict[tuple[str, bool], Outcome]
) -> None:
    derived = json.loads(outcomes[case["name"], False]["schema"])
    if case["name"] in ENVELOPES:
        value = derived["fields"][0]
        assert (derived["name"], derived["namespace"], value["name"]) == ("Envelope", "io.slotstream.v1", "value")
        assert value["type"] == case["schema"]
        added = derived["fields"][1:]
    else:
        count = len(case["schema"]["fields"])
        assert {**derived, "fields": derived["fields"][:count]} == case["schema"]
        assert list(derived) == list(case["schema"])
        added = derived["fields"][count:]
    assert [field["name"] for field in added[:2]] == ["urgent", "urgent_probability"]
    assert all(field["type"][0] == "null" and field["default"] is None for field in added)


@pytest.mark.parametrize("case", DECIDED_CASES, ids=lambda case: case["name"])
def test_fastavro_reads_the_output_where_it_reads_the_input(
    case: dict[str, Any], outcomes: dict[tuple[str, bool], Outcome]
) -> None:
    outcome = outcomes[case["name"], False]
    datum = bytes.fromhex(outcome["value"])[5:]
    if case["name"] in NOT_FOR_FASTAVRO:
        with pytest.raises((ValueError, OverflowError, fastavro.schema.SchemaParseException)):
            _read(case["schema"], bytes.fromhex(case["datum_hex"]))
        return
    read = _read(json.loads(outcome["schema"]), datum)
    before = _read(case["schema"], bytes.fromhex(case["datum_hex"]))
    if case["name"] in ENVELOPES:
        before = {"value": before}
    assert repr({name: read[name] for name in before}) == repr(before)  # NaN is not equal to itself
    assert (read["urgent"], read["urgent_probability"], read["decision_reasons"]) == (True, 0.9, None)


def _read(schema: Any, datum: bytes) -> Any:
    stream = io.BytesIO(datum)
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema))
    assert stream.tell() == len(datum)
    return value


NODE = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
BOMB = {  # 2^30 empty records in no byte at all
    "type": "record",
    "name": "Top",
    "fields": [
        {"name": "x", "type": ["null", "B30"]},
        {"name": "y", "type": {"type": "array", "items": "B30"}},
        {
            "name": "z",
            "type": [
                {"type": "record", "name": "B0", "fields": []},
                *(
                    {
                        "type": "record",
                        "name": f"B{level}",
                        "fields": [{"name": side, "type": f"B{level - 1}"} for side in "lr"],
                    }
                    for level in range(1, 31)
                ),
            ],
        },
    ],
}
HOSTILE: list[tuple[str, Any, str, list[str], str | None]] = [
    ("100,000 deep", NODE, "02" * 100_000 + "00", ["next"], "avro_too_deep"),
    ("101 deep", NODE, "02" * 100 + "00", ["next"], "avro_too_deep"),
    ("100 deep", NODE, "02" * 99 + "00", ["next"], DECIDED),
    ("2^40 nulls", {"type": "array", "items": "null"}, "80808080804000", [], "avro_count_too_large"),
    ("65,536 nulls", {"type": "array", "items": "null"}, "80800800", [], DECIDED),
    ("2^40 doubles", {"type": "array", "items": "double"}, "80808080804000", [], "avro_truncated"),
    ("2^40 fixed", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 9}}, "80808080804000", [],
     "avro_truncated"),
    ("2^40 strings", {"type": "array", "items": "string"}, "80808080804000", [], "avro_truncated"),
    ("2^62 map entries", {"type": "map", "values": "null"}, "ffffffffffffffff7f00", [], "avro_truncated"),
    ("negative length", {"type": "record", "name": "A", "fields": [{"name": "x", "type": "string"}]}, "0161", ["x"],
     "avro_negative_length"),
    ("negative union index", ["null", "int"], "01", [], "avro_union_out_of_range"),
    ("negative enum index", {"type": "enum", "name": "E", "symbols": ["A"]}, "01", [], "avro_enum_out_of_range"),
    ("11-byte varint", "long", "80" * 10 + "00", [], "avro_varint_too_long"),
    ("6-byte int", "int", "80" * 5 + "00", [], "avro_varint_too_long"),
    ("block size that lies", {"type": "array", "items": "int"}, "0306020200", [], "avro_block_size"),
    ("negative block size", {"type": "array", "items": "int"}, "0301020200", [], "avro_negative_length"),
    ("negative block count", {"type": "array", "items": "int"}, "0304020200", [], DECIDED),
    ("trailing bytes", "int", "0202", [], "avro_trailing_bytes"),
    ("endless record", {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, "", ["r"],
     "avro_too_deep"),
    ("types in types", BOMB, "0202003c", ["x", "y", "z"], DECIDED),
    ("many types in types", BOMB, "02808008003c", ["x", "y", "z"], DECIDED),
    ("too many types in types", BOMB, "02828008003c", ["x", "y", "z"], "avro_count_too_large"),
    ("schema 5,000 deep", "[" * 5000 + "]" * 5000, "", [], "avro_schema_invalid"),
    ("schema 300 deep", json.dumps("int").join(['{"type":"array","items":' * 300, "}" * 300]), "00", [],
     "avro_schema_invalid"),
]  # fmt: skip


@pytest.fixture(scope="module")
def hostile_outcomes() -> dict[str, Outcome]:
    """Name to what became of it; one process for all, which must live through them."""
    inputs = [
        {
            "schema": schema if isinstance(schema, str) and schema[0] in "[{" else json.dumps(schema),
            "datum": datum,
            "paths": paths,
        }
        for _, schema, datum, paths, _ in HOSTILE
    ]
    return dict(zip([row[0] for row in HOSTILE], run_in_child(inputs), strict=True))


@pytest.mark.parametrize(("name", "code"), [(row[0], row[4]) for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_hostile_value_neither_kills_the_process_nor_fills_its_memory(
    name: str, code: str | None, hostile_outcomes: dict[str, Outcome]
) -> None:
    assert hostile_outcomes[name].get("code") == code, hostile_outcomes[name]


@pytest.mark.registry
@pytest.mark.parametrize("case", DECIDED_CASES, ids=lambda case: case["name"])
def test_a_real_registry_takes_the_output_schema_as_fully_compatible_with_the_input(
    case: dict[str, Any], outcomes: dict[tuple[str, bool], Outcome], schema_registry: str
) -> None:
    registry = Registry(RegistryConfig(urls=(schema_registry,)))
    subject = f"case-{CASES.index(case)}-value"
    derived = outcomes[case["name"], False]["schema"]
    if case["name"] not in ENVELOPES:  # a reader of the input schema cannot read an envelope
        registry.register(subject, json.dumps(case["schema"]))
        httpx.put(f"{schema_registry}/config/{subject}", json={"compatibility": "FULL"}).raise_for_status()
    schema_id = registry.register(subject, derived)
    # It keeps the schema in its own spelling, with the names of one namespace shortened.
    names = [field["name"] for field in json.loads(registry.schema(schema_id).text)["fields"]]
    assert names == [field["name"] for field in json.loads(derived)["fields"]]
    registry.close()
