"""A writer schema is taken or refused as Java Avro does it."""

import json
from pathlib import Path
from typing import Any

import pytest

from slotstream.schemas.avro import WriterSchema, parse_writer_schema
from slotstream.schemas.errors import DecodeError

VERDICTS = Path(__file__).resolve().parents[2] / "cases" / "java_schema_verdicts.json"
CASES: list[dict[str, Any]] = json.loads(VERDICTS.read_text(encoding="utf-8"))["cases"]


def parse(schema: Any, *references: Any) -> WriterSchema:
    return parse_writer_schema(json.dumps(schema), [json.dumps(reference) for reference in references])


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": type_} for key, type_ in fields.items()]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["schema"][:80])
def test_a_schema_is_accepted_when_java_accepts_it(case: dict[str, Any]) -> None:
    if case["accepted"]:
        parse_writer_schema(case["schema"])
    else:
        with pytest.raises(DecodeError) as caught:
            parse_writer_schema(case["schema"])
        assert caught.value.code == "avro_schema_invalid"


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (record("A", **{"a-b": "int"}), "A.a-b has a name that Java refuses .*'a-b'"),
        (record("A", x="Nope"), "A.x names the type 'Nope', which is not defined"),
        (
            {**record("A"), "fields": [{"name": "x", "type": "int", "default": "1"}]},
            "A.x has a default .* int, got '1'",
        ),
        (record("A", x=["int", "int"]), "a union has the branch 'int' twice"),
        ({"type": "fixed", "name": "F", "size": -1}, "F is a fixed and needs a size, got -1"),
        ({"type": "array"}, "is a array and has no 'items'"),
    ],
)
def test_a_refusal_names_the_place_the_rule_and_the_value(schema: Any, named: str) -> None:
    with pytest.raises(DecodeError, match=named):
        parse(schema)


def test_a_schema_nested_deeper_than_a_datum_may_be_is_refused() -> None:
    text = '"int"'
    for _ in range(150):
        text = '{"type": "array", "items": %s}' % text  # noqa: UP031 - braces
    with pytest.raises(DecodeError, match="nested deeper than 100"):
        parse_writer_schema(text)


def test_a_chain_of_names_without_end_is_refused_and_not_followed() -> None:
    chain = [record("R0"), *(record(f"R{i}", x=f"R{i - 1}") for i in range(1, 5_000))]
    parse(chain)  # each is measured after the one it names
    with pytest.raises(DecodeError, match="nested deeper"):
        parse(chain[::-1])


@pytest.mark.parametrize(
    ("schema", "recursive"),
    [
        (record("N", next=["null", "N"]), True),
        (record("N", children={"type": "array", "items": "N"}), True),
        (record("A", inner=record("N", next=["null", "N"])), False),
        (record("A", b=record("B", back=["null", "A"])), True),
        (record("A", x="int"), False),
    ],
)
def test_a_record_is_recursive_when_it_stands_inside_itself(schema: Any, recursive: bool) -> None:
    assert parse(schema).recursive is recursive


def test_a_reference_is_put_in_where_it_is_first_named() -> None:
    part = {**record("Part", x="int"), "namespace": "n"}
    schema = parse({**record("Whole", a="n.Part", b=["null", "n.Part"]), "namespace": "m"}, part)
    a, b = schema.raw["fields"]
    assert a["type"] == part
    assert b["type"] == ["null", "n.Part"]
    fields = dict(schema.root.fields)
    assert fields["a"] is fields["b"].children[1]


def test_a_diamond_defines_the_shared_type_once() -> None:
    shared = record("A", x="int")
    left, right = record("B", a=shared), record("C", a=shared)  # each brings its own copy along
    schema = parse(record("D", b="B", c="C"), left, right)
    assert json.dumps(schema.raw).count('"name": "A"') == 1
    b, c = (dict(child.fields)["a"] for _, child in schema.root.fields)
    assert b is c


def test_a_type_named_before_the_reference_that_holds_it_is_still_defined_once() -> None:
    holder = record("B", a=record("A", x="int"))
    schema = parse(record("D", first="A", then="B"), holder)
    assert schema.names.keys() == {"D", "A", "B"}


def test_a_reference_keeps_its_namespace_inside_another_one() -> None:
    bare = record("Bare", e={"type": "enum", "name": "E", "symbols": ["A"]})
    schema = parse({**record("Whole", a="Bare"), "namespace": "m"}, bare)
    assert schema.names.keys() == {"m.Whole", "Bare", "E"}


def test_references_that_name_each_other_end() -> None:
    a, b = record("A", b=["null", "B"]), record("B", a=["null", "A"])
    assert parse(record("Top", a="A"), a, b).names.keys() == {"Top", "A", "B"}


def test_a_reference_that_is_not_given_is_named() -> None:
    with pytest.raises(DecodeError, match=r"n\.Part"):
        parse(record("Whole", a="n.Part"))


def test_without_references_the_schema_stays_as_it_was_written() -> None:
    written = {**record("A", x={"type": "string", "avro.java.string": "String"}), "doc": "d", "pii": True}
    assert parse(written).raw == written
