"""The configuration file of `slotstream run`: composition only, each part stands beside the operator that uses it."""

import difflib
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from slotstream.operators.codec import ValueConfig
from slotstream.operators.dead_letter_limit import DeadLetterLimitConfig
from slotstream.operators.decode import CodecSource, Tombstones
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.source import SourceConfig
from slotstream.operators.registry import RegistryConfig
from slotstream.operators.registry_file import SchemaFileConfig
from slotstream.pipelines.epochs import RunConfig
from slotstream.schemas.decision import DecisionSchema, load_decision_schema
from slotstream.schemas.errors import ConfigError
from slotstream.schemas.strict_yaml import parse_yaml

__all__ = ["InputConfig", "LimitsConfig", "OutputConfig", "PipelineConfig", "load_config", "section_model"]

_FROZEN = ConfigDict(frozen=True, extra="forbid")
_Model = TypeVar("_Model", bound=BaseModel)


def _told(model: type[BaseModel], field: str) -> str | None:
    return model.model_fields[field].description


class InputConfig(SourceConfig):
    """What is read, and what its values are."""

    format: Literal["avro", "json", "text"] = Field("avro", description=_told(ValueConfig, "format"))
    framing: Literal["confluent", "none"] = Field("confluent", description=_told(ValueConfig, "framing"))
    tombstones: Tombstones = Field(
        "forward",
        description="A record without a value deletes its key on a compacted topic. forward: to the decided topic, "
        "unasked. drop: counted only.",
    )


class OutputConfig(SinkConfig):
    """Where records go, and what is added to them."""

    field_prefix: str = Field("", description=_told(ValueConfig, "field_prefix"))
    probabilities: bool = Field(False, description=_told(ValueConfig, "probabilities"))


class LimitsConfig(BaseModel):
    """When the pipeline stops by itself."""

    model_config = _FROZEN

    dead_letters: DeadLetterLimitConfig = Field(
        DeadLetterLimitConfig(), description="So many dead records that a setting must be wrong."
    )


class PipelineConfig(BaseModel):
    """Everything that `slotstream run` needs. File names are relative to the configuration file's folder."""

    model_config = _FROZEN

    kafka: KafkaConfig = Field(description="How to reach the Kafka cluster.")
    input: InputConfig = Field(description="What is read.")
    registry: RegistryConfig | None = Field(None, description="Schema registry of Avro values.")
    output_registry: RegistryConfig | None = Field(
        None, description="Schema registry of the output topics, where it is another one."
    )
    schema_file: SchemaFileConfig | None = Field(None, description="Avro schema out of a file, without a registry.")
    decision_schema: Path = Field(description="The questions: a decision schema, YAML or JSON.")
    engine: EngineConfig = Field(EngineConfig(), description="What reads the answers.")
    output: OutputConfig = Field(description="Where records go, and what is added to them.")
    limits: LimitsConfig = Field(LimitsConfig(), description="When the pipeline stops by itself.")
    run: RunConfig = Field(RunConfig(), description="How the local runner works.")

    @model_validator(mode="after")
    def _schemas_come_from_one_place(self) -> Self:
        if self.input.format != "avro":
            return self
        if (self.registry is None) == (self.schema_file is None):
            raise ValueError("Avro values (input.format: avro) need registry or schema_file: give one of them")
        framed = self.input.framing == "confluent"
        if self.schema_file is not None and framed != (self.schema_file.input_id is not None):
            raise ValueError(
                "with schema_file, Confluent-framed values (input.framing) need its input_id and output_id, and bare "
                "ones have neither"
            )
        return self

    @model_validator(mode="after")
    def _output_is_not_read_again(self) -> Self:
        read = {self.input.topic, self.input.redrive_topic}
        for topic in (self.output.decided, self.output.review, self.output.dead):
            if topic in read:
                raise ValueError(f"topic {topic!r} is read and written: every record would come round for ever")
        return self

    def load_schema(self) -> DecisionSchema:
        """The decision schema.

        Raises:
            DecisionSchemaError: its file is missing or breaks a rule.
        """
        return load_decision_schema(self.decision_schema)

    def codec_source(self, schema: DecisionSchema) -> CodecSource:
        """What the decode and encode steps build their codec from."""
        return CodecSource(
            ValueConfig(
                format=self.input.format,
                framing=self.input.framing,
                field_prefix=self.output.field_prefix,
                probabilities=self.output.probabilities,
            ),
            schema,
            {"decided": self.output.decided, "review": self.output.review},
            source=self.registry or self.schema_file,
            sink=self.output_registry,
        )


def load_config(path: str | Path) -> PipelineConfig:
    """Read a configuration file.

    Raises:
        ConfigError: names the file and, for each fault, the key, the rule, the value and what the key is for.
    """
    path = Path(path)
    try:
        data = parse_yaml(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"configuration {path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ConfigError(f"configuration {path}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"configuration {path}: a map of settings is needed, got {type(data).__name__}")
    try:
        config = PipelineConfig.model_validate(data)
    except ValidationError as error:
        faults = [f"  {_fault(fault)}" for fault in error.errors()]
        raise ConfigError(f"configuration {path} breaks {len(faults)} rule(s):\n" + "\n".join(faults)) from None
    return _resolved(config, path.resolve().parent)


def _resolved(config: _Model, folder: Path) -> _Model:
    """The model with every file name made absolute, relative to `folder`."""
    changes: dict[str, Any] = {}
    for name, value in config:
        if isinstance(value, BaseModel):
            changes[name] = _resolved(value, folder)
        elif isinstance(value, Path):
            changes[name] = folder / value.expanduser()
        elif isinstance(config, EngineConfig) and name == "model" and value and (folder / value).is_dir():
            changes[name] = str(folder / value)
    return config.model_copy(update=changes)


def _fault(fault: Any) -> str:
    """One line: key path, rule, value (unless it may be a secret), and what the key is for or what was meant."""
    path = [part for part in fault["loc"] if isinstance(part, str)]
    key = ".".join(map(str, fault["loc"])) or "(whole file)"
    if fault["type"] == "extra_forbidden":
        known = [name for name, _ in _fields(path[:-1])]
        near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
        meant = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        return f"{key}: unknown key; {meant}"  # the value may be a secret under a wrong name
    meaning = dict(_fields(path[:-1])).get(path[-1], "") if path else ""
    told = f" ({meaning.rstrip('.')})" if meaning else ""
    if fault["type"] == "missing":
        return f"{key}: missing{told}"
    rule = fault["msg"].removeprefix("Value error, ")
    shown = re.sub(r"//[^/@\s]*@", "//***@", repr(fault["input"]))  # a login in an address
    secret = any(word in key for word in ("password", "token", "secret"))
    got = "" if secret or len(shown) > 80 or isinstance(fault["input"], dict) else f", got {shown}"
    return f"{key}: {rule}{got}{told}"


def _fields(path: list[str]) -> Iterator[tuple[str, str]]:
    """Name and description of every key of the section at `path`."""
    model: Any = PipelineConfig
    for part in path:
        field = model.model_fields.get(part)
        model = section_model(field.annotation) if field else None
        if model is None:
            return
    for name, field in model.model_fields.items():
        yield name, field.description or ""


def section_model(annotation: Any) -> type[BaseModel] | None:
    """The model class in `Model` or `Model | None`."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return next((each for each in options if isinstance(each, type) and issubclass(each, BaseModel)), None)
