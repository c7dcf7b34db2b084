"""The Avro part of `slotstream check`: the input's schema, and whether the output's would be taken."""

from collections.abc import Iterator

from slotstream.operators.finding import Finding, Level
from slotstream.operators.registry import RegisteredSchema, RegistryConfig, shared_registry
from slotstream.operators.registry_file import FileRegistry
from slotstream.pipelines.config import PipelineConfig
from slotstream.schemas.avro import Node, WriterSchema, derive, parse_writer_schema
from slotstream.schemas.decision import DecisionSchema
from slotstream.schemas.errors import DecodeError
from slotstream.schemas.fields import DecisionFields

__all__ = ["check_avro", "lacks"]


def check_avro(config: PipelineConfig, schema: DecisionSchema) -> Iterator[Finding]:
    """Derive the output schema of the input's newest schema and ask the registry about it; registers nothing.

    Raises:
        SlotstreamError: the registry does not answer, or a schema cannot be used.
    """
    subject = f"{config.input.topic}-value"
    if config.schema_file is not None:
        file = config.schema_file
        registered: RegisteredSchema | None = FileRegistry(file).schema(file.input_id or 0)
        subject = str(file.input_file)
    else:
        assert config.registry is not None
        registered = shared_registry(config.registry).latest(subject)
        yield Finding("ok", "schema registry", f"{config.registry.urls[0]} answers")
    if registered is None:
        advice = "records name their schemas by id, so this may be right; then nothing about them can be checked now"
        yield Finding("warning", f"subject {subject}", "is not in the registry", advice)
        return
    try:
        writer = parse_writer_schema(registered.text, registered.references)
    except DecodeError as error:
        yield Finding(
            "error", f"subject {subject}", str(error), "records of this schema go to dead; correct the schema"
        )
        return
    yield from _input(subject, writer, schema)
    yield from _output(config, schema, writer)


def _input(subject: str, writer: WriterSchema, schema: DecisionSchema) -> Iterator[Finding]:
    missing = [path for path in schema.state.paths if lacks(writer.root, path.split("."))]
    for path in missing:
        message = f"schema {writer.title} has no field {path!r}, which the decision schema's state needs"
        level: Level = "error" if schema.state.absent == "dead" else "warning"
        yield Finding(level, f"subject {subject}", message, "correct the decision schema's state")
    if not missing:
        yield Finding("ok", f"subject {subject}", f"schema {writer.title} has every field that is asked about")


def _output(config: PipelineConfig, schema: DecisionSchema, writer: WriterSchema) -> Iterator[Finding]:
    fields = DecisionFields(
        [(question.id, question.type) for question in schema.questions],
        prefix=config.output.field_prefix,
        probabilities=config.output.probabilities,
    )
    derived = derive(writer, fields)
    if derived.envelope:
        message = f"{writer.title} is no flat record: it becomes the field `value` of an envelope"
        yield Finding(
            "warning", "output schema", message, "readers of the input's schema cannot read the output topics"
        )
    sink: RegistryConfig | None = config.output_registry or config.registry
    if sink is None:
        yield Finding("ok", "output schema", f"{len(fields.names)} decision fields are added to {writer.title}")
        return
    for topic in (config.output.decided, config.output.review):
        subject = f"{topic}-value"
        refusals = shared_registry(sink).incompatibilities(subject, derived.text)
        if refusals:
            message = f"the registry would refuse the output schema: {'; '.join(refusals)[:500]}"
            yield Finding(
                "error", f"subject {subject}", message, "use another output topic or another compatibility level"
            )
        else:
            yield Finding("ok", f"subject {subject}", f"takes {writer.title} with {len(fields.names)} decision fields")


def lacks(node: Node, path: list[str]) -> bool:
    """Whether no value of this type can have the field at `path`."""
    if not path:
        return False
    if node.kind == "union":
        return all(lacks(branch, path) for branch in node.children)
    if node.kind == "map":
        return lacks(node.children[0], path[1:])
    if node.kind != "record":
        return True
    inner = dict(node.fields).get(path[0])
    return inner is None or lacks(inner, path[1:])
