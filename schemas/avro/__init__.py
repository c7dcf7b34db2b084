"""Avro in and out: parse a writer schema, read the wanted fields, derive the output schema, append the decision.

A record's own bytes are never decoded and encoded again: an Avro record is the concatenation of its fields, so fields
that are added at the end of the schema are added at the end of the bytes.
"""

from slotstream.schemas.avro.append import DecisionEncoder
from slotstream.schemas.avro.derive import Derived, derive
from slotstream.schemas.avro.node import Node, WriterSchema
from slotstream.schemas.avro.reader import DatumReader
from slotstream.schemas.avro.schema import parse_writer_schema

__all__ = [
    "DatumReader",
    "DecisionEncoder",
    "Derived",
    "Node",
    "WriterSchema",
    "derive",
    "parse_writer_schema",
]
