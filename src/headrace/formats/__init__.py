"""Formats of records that others write: bytes to columns and back.

`json` reads and writes objects of JSON. Times are described by `field_time`, `header_time` and `kafka_time`.
"""

from headrace.formats.format import DecodedRecords, Format, Records
from headrace.formats.json import json
from headrace.formats.times import field_time, header_time, kafka_time

__all__ = ["DecodedRecords", "Format", "Records", "field_time", "header_time", "json", "kafka_time"]
