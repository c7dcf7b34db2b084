"""The output schema is the input schema with fields behind it, and the bytes are the input's with bytes behind them."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.schemas.avro import DecisionEncoder, Derived, derive, parse_writer_schema
from slotstream.schemas.errors import ConfigError, EncodeError
from slotstream.schemas.fields import DecisionFields
from slotstream.schemas.label import Decision, Label
from tests.schemas.avro.generated import Generated, generated_records, unhurried

FIELDS = DecisionFields([("urgent", "noul"), ("intent", "choice")])
WITH_PROBABILITIES = DecisionFields([("urgent", "noul"), ("intent", "choice")], probabilities=True)
OPTION = "io.slotstream.v1.OptionProbability"


def decision(**changes: Any) -> Decision:
    labels = (
        Label("urgent", "noul", True, None, 0.9, 0.99, 0.8, 0.325083, {"yes": 0.9, "no": 0.1}),
        Label("intent", "choice", "refund", None, 0.9, 0.98, 0.8, 0.325083, {"refund": 0.9, "größe": 0.1}),
    )
    made: dict[str, Any] = {
        "id": "u:0:7:h", "route": "decided", "reasons": (), "labels": labels, "schema_name": "s", "schema_version": "1",
        "schema_hash": "h", "model": "m", "engine": "e", "prompt_hash": "p", "draws": 1, "truncated": False,
        "decided_at_ms": 1_700_000_000_123,
    }  # fmt: skip
    return Decision(**{**made, **changes})


def record(name: str = "A", **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": type_} for key, type_ in fields.items()]}


def derived(schema: Any, fields: DecisionFields = FIELDS) -> Derived:
    return derive(parse_writer_schema(json.dumps(schema)), fields)


def read(schema: str, datum: bytes) -> Any:
    stream = io.BytesIO(datum)
    # Without logical types: the bytes are what is compared.
    plain = fastavro.parse_schema(json.loads(schema.replace('"logicalType"', '"was"')))
    value = fastavro.schemaless_reader(stream, plain)
    assert stream.tell() == len(datum)
    return value


@unhurried(200)
@given(generated_records(), st.booleans())
def test_the_records_bytes_and_the_decisions_are_one_datum_of_the_derived_schema(
    generated: Generated, probabilities: bool
) -> None:
    fields = WITH_PROBABILITIES if probabilities else FIELDS
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(generated.schema), generated.written)
    value = read(derived(generated.schema, fields).text, out.getvalue() + DecisionEncoder(fields).encode(decision()))
    added = dict(zip(fields.names, fields.values(decision()), strict=True))
    assert value == {**generated.plain, **added}


@unhurried(100)
@given(
    st.text(max_size=300),
    st.floats(allow_nan=False),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_every_value_is_written_as_fastavro_reads_it(text: str, number: float, draws: int, at: int) -> None:
    label = Label("urgent", "noul", False, None, number, 0.0, 1.0, 0.0, {text: number})
    given_ = decision(labels=(label,), model=text, draws=draws, decided_at_ms=at)
    fields = DecisionFields([("urgent", "noul")], probabilities=True)
    value = read(derived(record(), fields).text, DecisionEncoder(fields).encode(given_))
    assert value == dict(zip(fields.names, fields.values(given_), strict=True))


@pytest.mark.parametrize(
    "changes", [{"draws": "1"}, {"decided_at_ms": 1 << 63}, {"model": 5}, {"model": "\ud800"}, {"draws": 1.5}]
)
def test_a_value_of_another_type_is_an_encode_error(changes: dict[str, Any]) -> None:
    with pytest.raises(EncodeError, match="u:0:7:h"):
        DecisionEncoder(FIELDS).encode(decision(**changes))


def test_nothing_else_of_the_input_schema_changes() -> None:
    schema = {
        "name": "A",  # in an order of its own
        "doc": "d",
        "type": "record",
        "namespace": "u",
        "aliases": ["u.Old"],
        "connect.version": 3,
        "fields": [
            {"name": "x", "type": {"type": "long", "logicalType": "timestamp-micros"}, "order": "ignore", "pii": True}
        ],
    }
    text = derived(schema).text
    out = json.loads(text)
    assert {**out, "fields": out["fields"][:1]} == schema
    assert list(out) == list(schema)
    assert [field["name"] for field in out["fields"][1:]] == list(FIELDS.names)


def test_every_added_field_is_null_by_default_and_a_distribution_empty() -> None:
    added = json.loads(derived(record(), WITH_PROBABILITIES).text)["fields"]
    for field in added:
        if field["name"].endswith("_probabilities"):
            assert (field["type"]["type"], field["default"]) == ("array", [])
        else:
            assert (field["type"][0], field["default"]) == ("null", None)


def test_the_option_record_is_defined_once() -> None:
    text = derived(record(), WITH_PROBABILITIES).text
    assert text.count('"name": "OptionProbability"') == 1
    assert text.count(f'"items": "{OPTION}"') == 1


@pytest.mark.parametrize(
    "fields",
    [
        [{"name": "Urgent_Mass", "type": "int"}],
        [{"name": "x", "type": "int", "aliases": ["decision_id"]}],
        [{"name": "decided_at", "type": "long"}],
    ],
    ids=["another case", "an alias", "the same name"],
)
def test_a_name_that_is_taken_stops_and_says_which_setting_helps(fields: list[dict[str, Any]]) -> None:
    schema = {**record(), "fields": fields}
    with pytest.raises(ConfigError, match=r"output\.field_prefix"):
        derived(schema)
    derived(schema, DecisionFields([("urgent", "noul")], prefix="ai_"))


def test_a_name_taken_in_a_sub_record_is_no_clash() -> None:
    derived(record(sub=record("B", urgent="int")))


def test_our_own_output_takes_a_second_decision_under_a_prefix() -> None:
    first = derived(record(x="int"), WITH_PROBABILITIES).text
    with pytest.raises(ConfigError, match=r"output\.field_prefix"):
        derived(json.loads(first), WITH_PROBABILITIES)
    again = DecisionFields([("urgent", "noul"), ("intent", "choice")], prefix="second_", probabilities=True)
    second = derived(json.loads(first), again).text
    assert second.count('"name": "OptionProbability"') == 1
    datum = b"\x02" + DecisionEncoder(WITH_PROBABILITIES).encode(decision()) + DecisionEncoder(again).encode(decision())
    assert read(second, datum)["second_intent_probabilities"][1] == {"option": "größe", "probability": 0.1}


def test_a_type_of_ours_that_is_defined_otherwise_is_refused() -> None:
    theirs = {**record("OptionProbability", option="string"), "namespace": "io.slotstream.v1"}
    with pytest.raises(ConfigError, match=OPTION):
        derived(record(x=theirs), WITH_PROBABILITIES)


NODE = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "N"]}],
}


@pytest.mark.parametrize(
    ("schema", "datum", "value"),
    [
        (NODE, "020204" + "00", {"v": 1, "next": {"v": 2, "next": None}}),
        ({**NODE, "namespace": "u"}, "0200", {"v": 1, "next": None}),
        ({"type": "array", "items": NODE}, "02020000", [{"v": 1, "next": None}]),
        (["null", NODE], "020200", {"v": 1, "next": None}),
        ("string", "0278", "x"),
        ({"type": "map", "values": {"type": "enum", "name": "E", "symbols": ["A"]}}, "02026b0000", {"k": "A"}),
        ({"type": "fixed", "name": "a.b.F", "size": 1}, "07", b"\x07"),
    ],
)
def test_what_cannot_take_fields_goes_into_an_envelope(schema: Any, datum: str, value: Any) -> None:
    out = derived(schema)
    assert out.envelope
    assert read(out.text, bytes.fromhex(datum) + DecisionEncoder(FIELDS).encode(decision()))["value"] == value


def test_types_without_a_namespace_do_not_get_the_envelopes() -> None:
    out = parse_writer_schema(derived(["null", record("A", b=record("B")), record("n.C")]).text)
    assert out.names.keys() == {"io.slotstream.v1.Envelope", "A", "B", "n.C"}


def test_an_envelope_can_take_a_second_decision() -> None:
    first = derived(NODE).text
    out = derived(json.loads(first), DecisionFields([("urgent", "noul")], prefix="second_"))
    assert not out.envelope


def test_a_question_named_as_the_envelopes_field_is_refused() -> None:
    with pytest.raises(ConfigError, match="value"):
        derived("string", DecisionFields([("value", "noul")]))


def test_an_envelope_inside_what_needs_one_is_refused() -> None:
    first = json.loads(derived(NODE).text)
    with pytest.raises(ConfigError, match="Envelope"):
        derived({"type": "array", "items": first}, DecisionFields([("urgent", "noul")], prefix="second_"))
