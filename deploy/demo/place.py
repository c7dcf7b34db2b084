"""Where the demo's Kafka and schemas are: written into demo.yaml for `slotstream run`, and found there again.

Nothing here needs Beam, whose import takes seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from slotstream.operators.registry import RegistryConfig, shared_registry

__all__ = ["CONFIG", "INPUT", "ROUTES", "TICKET_SCHEMA", "Place", "Schemas"]

HERE = Path(__file__).parent
CONFIG = Path("demo-out/demo.yaml")
TICKET_SCHEMA = HERE / "ticket.avsc"
INPUT = "tickets"
ROUTES = ("decided", "review", "dead")
"""The output topics have the names of their routes."""
TICKET_ID, OUTPUT_ID = 1, 2
"""Schema ids of Confluent's framing where there is no registry to give them."""

Schemas = Callable[[int], str]
"""Schema id to Avro schema, as JSON text."""


@dataclass(frozen=True, slots=True)
class Place:
    """bootstrap: of Kafka.  registry: its URL, None where the schemas are files.  folder: of demo.yaml."""

    bootstrap: str
    registry: str | None
    folder: Path

    @classmethod
    def of(cls, config: Path) -> Self:
        """The place that a demo.yaml names.

        Raises:
            OSError: there is none.
        """
        settings = yaml.safe_load(config.read_text(encoding="utf-8"))
        registry = settings.get("registry")
        return cls(settings["kafka"]["bootstrap_servers"], registry and registry["urls"][0], config.parent)

    @property
    def output_schema(self) -> Path:
        """Where the pipeline writes the schema that it derives, when there is no registry."""
        return self.folder / "output.avsc"

    def write(self, config: Path, *, decision_schema: Path, engine: dict[str, Any]) -> None:
        """Write the pipeline's configuration; file names in it are relative to it, or absolute."""
        schemas: dict[str, Any]
        if self.registry is not None:
            schemas = {"registry": {"urls": [self.registry]}}
        else:
            files = {"input_file": str(TICKET_SCHEMA), "output_file": self.output_schema.name}
            schemas = {"schema_file": files | {"input_id": TICKET_ID, "output_id": OUTPUT_ID}}
        settings = {
            "kafka": {"bootstrap_servers": self.bootstrap},
            "input": {"topic": INPUT, "group": "slotstream-demo"},
            **schemas,
            "decision_schema": str(decision_schema.resolve()),
            "engine": engine,
            "output": {route: route for route in ROUTES},
            "run": {"progress_s": 2.0, "shutdown_timeout_s": 5.0},
        }
        head = "# Written by the demo. Its Kafka and registry are there while `make demo KEEP=1` runs.\n"
        config.write_text(head + yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")

    def ticket_schema_id(self) -> int:
        """The id of ticket.avsc, registered if it is not."""
        if self.registry is None:
            return TICKET_ID
        text = TICKET_SCHEMA.read_text(encoding="utf-8")
        return shared_registry(RegistryConfig(urls=(self.registry,))).register(f"{INPUT}-value", text)

    def schemas(self) -> Schemas:
        """Where the schemas of input and output are looked up."""
        if self.registry is not None:
            registry = shared_registry(RegistryConfig(urls=(self.registry,)))
            return lambda schema_id: registry.schema(schema_id).text
        files = {TICKET_ID: TICKET_SCHEMA, OUTPUT_ID: self.output_schema}

        def text(schema_id: int) -> str:
            if schema_id not in files:
                raise ValueError(f"a value has schema id {schema_id}, which no schema file has")
            return files[schema_id].read_text(encoding="utf-8")

        return text
