"""A schema registry's place taken by two files: for topics of one schema, without a registry."""

import threading
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from slotstream.operators.registry import RegisteredSchema
from slotstream.schemas.avro import parse_writer_schema
from slotstream.schemas.errors import ConfigError, DecodeError, OutputSchemaRefused

__all__ = ["FileRegistry", "SchemaFileConfig"]


class SchemaFileConfig(BaseModel):
    """Where the input schema stands, and where the output schema is written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_file: Path = Field(description="Avro schema (.avsc) of the input topic's values.")
    output_file: Path | None = Field(None, description="Where the output schema is written; not at all when left out.")
    input_id: int | None = Field(
        None, gt=0, lt=1 << 32, description="Confluent framing: the schema id that input values have."
    )
    output_id: int | None = Field(
        None, gt=0, lt=1 << 32, description="Confluent framing: the schema id that output values get."
    )

    @model_validator(mode="after")
    def _both_ids_or_none(self) -> Self:
        if (self.input_id is None) != (self.output_id is None):
            raise ValueError("Confluent-framed values take both input_id and output_id, bare values neither")
        return self


class FileRegistry:
    """One input schema and the schema that is derived from it, in the shape of a registry. Bare values have id 0.

    Raises:
        ConfigError: the input file cannot be read or is no valid schema.
    """

    def __init__(self, config: SchemaFileConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._written: str | None = None
        try:
            self._text = config.input_file.read_text(encoding="utf-8")
            parse_writer_schema(self._text)
        except (OSError, UnicodeDecodeError, DecodeError) as error:
            raise ConfigError(f"input schema file {config.input_file}: {error}") from None

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Raises DecodeError `schema_not_found` for an id that is not `input_id`."""
        if schema_id != (self._config.input_id or 0):
            raise DecodeError(
                f"the value has schema id {schema_id}, and {self._config.input_file} is {self._config.input_id}",
                code="schema_not_found",
            )
        return RegisteredSchema(schema_id, self._text)

    def register(self, subject: str, text: str) -> int:
        """Write the output file, once.

        Raises:
            OutputSchemaRefused: the file cannot be written, or another schema is in it already.
        """
        with self._lock:
            if self._written != text and self._config.output_file is not None:
                _write(self._config.output_file, text, subject)
            self._written = text
        return self._config.output_id or 0


def _write(path: Path, text: str, subject: str) -> None:
    try:
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise OutputSchemaRefused(
                f"{path} holds another schema than the output of {subject} has now: readers may depend on it; "
                f"move the file away or name another output_file"
            )
        path.write_text(text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OutputSchemaRefused(f"the output schema cannot be written to {path}: {error}") from error
