"""Contract tests of plug-ins: what connectors, processors, message types and sections of settings must keep.

`headrace.testing.contracts` has all contract tests in one place; write one line per plug-in in the tests of a package.
"""

from __future__ import annotations

import dataclasses
import pickle
import threading
from typing import TYPE_CHECKING, Any

import polars as pl
from pydantic import ValidationError

from headrace.config import KEYS, Section
from headrace.errors import HeadraceError
from headrace.events import Codec, TypeRegistry
from headrace.testing.contract_error import ContractError, must
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from headrace.ingest import Connector, Processor, RawMessage

_TIMES = ("event_time", "ingestion_time")
#: Payloads that hurt readers: empty, no text, deep, long, of numbers that do not fit.
HOSTILE_PAYLOADS = (
    *(b"", b"\x00", b"\xff\xfe", b"{", b"null", b"[" * 5_000, b"{}" * 50_000, b'{"a":1e999}'),
    *("a".encode("utf-16"), b'"\n', b",,,,", b"a" * 200_000),
)


def check_connector(connector: type[Connector[Any]], settings: Any, *, batches: int = 3) -> None:
    """Put a connector of your own through its life, against a source that is there.

    It has a name and frozen settings; `check` answers with a sentence; messages have bytes and an arrival; after `stop`
    it ends; tokens can be acknowledged; it can be closed, also when it was never opened; a second one works as the
    first.

    Args:
        connector: The class.
        settings: How to reach a source that sends messages now.
        batches: How many batches to take before `stop` is set.

    Raises:
        ContractError: It does not hold one of these.
    """
    name = getattr(connector, "name", None)
    must(isinstance(name, str) and bool(name) and ":" not in str(name), f"its name is {name!r}")
    _check_settings_class(connector.Settings)
    connector(settings).close()
    for number in (1, 2):
        made = connector(settings)
        found = made.check()
        must(isinstance(found, str) and bool(found), f"check() answered {found!r}, not a sentence")
        stop, messages, further = threading.Event(), 0, 0
        with made:
            for count, batch in enumerate(made.batches(stop), start=1):
                for message in batch.messages:
                    must(
                        isinstance(message.payload, bytes), f"a payload is {type(message.payload).__name__}, not bytes"
                    )
                    must(message.arrival > 0, "a message has no arrival")
                messages += len(batch.messages)
                if batch.token is not None:
                    made.acknowledge([batch.token])
                further += stop.is_set()
                must(further <= 2, "it goes on after stop was set")
                if (count >= batches and messages) or count >= 1_000:
                    stop.set()
        must(messages > 0, f"the source gave no message (run {number})")


def check_processor(processor: Processor, samples: Sequence[RawMessage]) -> None:
    """Put a processor of your own through what the ingestion relies on.

    Every message is part of the events or dismissed with a cause, whatever its bytes are; what becomes of one does not
    depend on those beside it; events go to the topics that it names and can be written and read.

    Args:
        processor: The processor.
        samples: Messages, some of them good.

    Raises:
        ContractError: It does not hold one of these.
    """
    must(bool(processor.name) and bool(processor.topics), "it has no name, or names no topics")
    must(_outcome(processor, []) == ([], {}), "it makes events of nothing")
    good, _ = _outcome(processor, samples)
    must(bool(good), "none of the samples became an event")
    hostile = [samples[0]._replace(payload=payload) for payload in HOSTILE_PAYLOADS]
    mixed = [message for pair in zip(hostile, [*samples] * len(hostile), strict=False) for message in pair]
    for batch in (samples, hostile, mixed):
        events, dismissed = _outcome(processor, batch)
        must(_outcome(processor, batch) == (events, dismissed), "asked twice, it answers differently")
        single = [_outcome(processor, [message]) for message in batch]
        must(
            sorted(events) == sorted(event for one, _ in single for event in one)
            and list(dismissed) == [number for number, (_, one) in enumerate(single) if one],
            "what becomes of a message depends on the messages beside it",
        )


def _outcome(processor: Processor, messages: Sequence[RawMessage]) -> tuple[list[str], dict[int, str]]:
    """The events of a batch, each as text, and the causes of what was dismissed."""
    answer = processor.process(messages)
    numbers = list(answer.dismissed)
    must(numbers == sorted(set(numbers)), "the dismissed messages are not in ascending order")
    must(all(0 <= number < len(messages) for number in numbers), "a message was dismissed that is not in the batch")
    must(
        answer.count + len(numbers) == len(messages),
        f"{len(messages)} messages became {answer.count} events and {len(numbers)} dismissals",
    )
    events = []
    for part in answer.events:
        must(part.topic in processor.topics, f"events go to {part.topic}, which is none of its topics")
        for time in _TIMES:
            must(part.frame.schema.get(time) == INSTANT, f"{time} is {part.frame.schema.get(time)}, not {INSTANT}")
        values = Codec().encode(part.frame, part.type)
        columns = None
        if _is_open(part.type):
            columns = pl.Schema({name: kind for name, kind in part.frame.schema.items() if name not in _TIMES})
        decoded = Codec(TypeRegistry(part.type)).decode(values, types=[part.type], columns=columns)
        must(decoded.frame.height == part.frame.height, "an event that it makes cannot be read again")
        keys = [None] * part.frame.height if part.keys is None else part.keys.to_list()
        must(len(keys) == part.frame.height, "there is not one key per event")
        events += [
            f"{part.topic} {part.type.DESCRIPTOR.full_name} {key} {row!r}"
            for key, row in zip(keys, part.frame.to_dicts(), strict=True)
        ]
    return events, {number: str(dismissal.cause) for number, dismissal in answer.dismissed.items()}


def _is_open(kind: type[Message]) -> bool:
    from headrace.events.layout import is_open

    return is_open(kind.DESCRIPTOR)  # type: ignore[arg-type]


def check_type(kind: type[Message], sample: Message) -> None:
    """Put a message type of your own through what the envelope relies on.

    Its fields have names that frames can have; a sample is written and read again, binary and as JSON; a worker that
    lacks the generated module reads it, too.

    Args:
        kind: The generated class.
        sample: One message, with some of its fields.

    Raises:
        ContractError: It does not hold one of these.
    """
    try:
        registry = TypeRegistry(kind)
    except HeadraceError as problem:
        raise ContractError(str(problem)) from problem
    elsewhere = pickle.loads(pickle.dumps(registry))  # noqa: S301  our own bytes
    must(kind.DESCRIPTOR.full_name in elsewhere, "a worker without its module does not know it")
    at = 1_700_000_000_000_000
    values = [Codec(registry).write(sample, event_time=at, encoding=encoding) for encoding in ("binary", "json")]
    ours, theirs = (Codec(each).decode(values, types=[kind.DESCRIPTOR.full_name]) for each in (registry, elsewhere))
    must(not ours.dead.height, f"a sample cannot be read again: {ours.dead['text'].to_list()}")
    must(ours.frame.row(0) == ours.frame.row(1), "binary and JSON are read as different rows")
    must(ours.frame.equals(theirs.frame), "a worker without its module reads other rows")


def check_settings(section: type[Section]) -> None:
    """Put a section of settings of your own through what `headrace config` and the messages rely on.

    It has a name of its own; every setting has a default, says what it means and what it allows; an unknown one is
    refused.

    Args:
        section: The class.

    Raises:
        ContractError: It does not hold one of these.
    """
    name = getattr(section, "section", "")
    own = {key.partition(".")[0] for key in KEYS}
    must(bool(name) and name not in own, f"its name is {name!r}")
    try:
        made = section()
    except ValidationError as problem:
        raise ContractError(f"not every setting has a default that is allowed: {problem}") from problem
    for field, info in section.model_fields.items():
        allowed = info.json_schema_extra
        must(bool(info.description), f"{name}.{field} does not say what it means")
        must(isinstance(allowed, dict) and bool(allowed.get("allowed")), f"{name}.{field} does not say what it allows")
    must(hash(made) == hash(section()), "it cannot be compared by value")
    try:
        section.model_validate({"no_such_setting": 1})
    except ValidationError:
        return
    raise ContractError("it takes a setting that it does not have")


def _check_settings_class(settings: Any) -> None:
    must(dataclasses.is_dataclass(settings), "Settings is no dataclass")
    must(settings.__dataclass_params__.frozen, "Settings is not frozen")
