"""A topic of one schema, given as a file, without a registry."""

import io
import json
from pathlib import Path

import fastavro
import pytest
from pydantic import ValidationError

from slotstream.operators.registry_file import FileRegistry, SchemaFileConfig
from slotstream.schemas.errors import ConfigError, DecodeError, OutputSchemaRefused
from tests.operators.codec_examples import DECIDED, SCHEMA, codec, framed, message


def test_bare_values_of_a_schema_file_stay_bare(tmp_path: Path) -> None:
    (tmp_path / "in.avsc").write_text(json.dumps(SCHEMA))
    files = FileRegistry(SchemaFileConfig(input_file=tmp_path / "in.avsc", output_file=tmp_path / "out.avsc"))
    avro_codec = codec("avro", schemas=files, framing="none")
    record = avro_codec.decode(message(b"\x04hi"))
    assert (record.fields, record.schema_id) == ({"text": "hi"}, None)
    written = avro_codec.encode(record, DECIDED)
    assert written.startswith(b"\x04hi")
    schema = fastavro.parse_schema(json.loads((tmp_path / "out.avsc").read_text()))
    assert fastavro.schemaless_reader(io.BytesIO(written), schema)["refund"] is True


def test_framed_values_of_a_schema_file_have_the_ids_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "in.avsc").write_text(json.dumps(SCHEMA))
    files = FileRegistry(SchemaFileConfig(input_file=tmp_path / "in.avsc", input_id=7, output_id=8))
    avro_codec = codec("avro", schemas=files)
    written = avro_codec.encode(avro_codec.decode(framed(b"\x04hi", 7)), DECIDED)
    assert written.startswith(b"\0\0\0\0\x08\x04hi")
    with pytest.raises(DecodeError, match="schema id 9") as caught:
        avro_codec.decode(framed(b"\x04hi", 9))
    assert caught.value.code == "schema_not_found"


def test_an_output_file_is_written_again_only_with_the_same_schema(tmp_path: Path) -> None:
    (tmp_path / "in.avsc").write_text(json.dumps(SCHEMA))
    config = SchemaFileConfig(input_file=tmp_path / "in.avsc", output_file=tmp_path / "out.avsc")
    assert FileRegistry(config).register("s", "one") == FileRegistry(config).register("s", "one") == 0
    with pytest.raises(OutputSchemaRefused, match=r"out\.avsc"):
        FileRegistry(config).register("s", "two")
    assert (tmp_path / "out.avsc").read_text() == "one"


@pytest.mark.parametrize("content", [None, "{", '{"type":"record","name":"a-b","fields":[]}'])
def test_an_input_file_that_is_no_schema_stops_at_the_start(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "in.avsc").write_text(content)
    with pytest.raises(ConfigError, match=r"in\.avsc"):
        FileRegistry(SchemaFileConfig(input_file=tmp_path / "in.avsc"))


def test_one_id_without_the_other_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="both input_id and output_id"):
        SchemaFileConfig(input_file=tmp_path / "in.avsc", input_id=7)
