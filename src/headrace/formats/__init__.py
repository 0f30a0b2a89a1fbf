"""Formats of records that others write: bytes to columns and back.

`json` reads and writes objects of JSON, `avro` values of an Avro schema (with a `SchemaRegistry` or without), `csv`
lines of CSV, `protobuf` messages of a type of one's own; `text` and `raw` take a value as it is. `confluent` reads
values in Confluent's wire format. `cloudevents` reads and writes events of that standard, `debezium` reads changes of
tables. `record` adds the key, headers and Kafka's figures as columns. Times are described by `field_time`,
`header_time` and `kafka_time`.
"""

from headrace.formats.avro import avro
from headrace.formats.cloudevents import cloudevents
from headrace.formats.confluent import confluent
from headrace.formats.csv import csv
from headrace.formats.debezium import debezium
from headrace.formats.format import DecodedRecords, Format, RecordPart, Records
from headrace.formats.json import json
from headrace.formats.protobuf import protobuf
from headrace.formats.record import record
from headrace.formats.schema_registry import SchemaRegistry
from headrace.formats.text import raw, text
from headrace.formats.times import field_time, header_time, kafka_time

__all__ = [
    "DecodedRecords",
    "Format",
    "RecordPart",
    "Records",
    "SchemaRegistry",
    "avro",
    "cloudevents",
    "confluent",
    "csv",
    "debezium",
    "field_time",
    "header_time",
    "json",
    "kafka_time",
    "protobuf",
    "raw",
    "record",
    "text",
]
