"""Which packages belong to which extra, and the error for one that is not installed.

`pip install headrace` brings the in-process engine and the command line. The other parts need packages that come with
an extra, as in `pip install 'headrace[spark]'`. This module is the only place that knows which import belongs to which
extra; a test compares it with `pyproject.toml`. A part that needs an extra calls `require` before it imports the
packages, so that a user reads the command that helps and not the name of a module.
"""

from __future__ import annotations

from importlib.util import find_spec

from headrace.errors import MissingExtraError

#: The modules that an extra brings by itself, without those of the extras that it includes.
MODULES: dict[str, tuple[str, ...]] = {
    "kafka": ("confluent_kafka", "prometheus_client", "psutil"),
    "spark": ("pyspark", "py4j", "pandas"),
    "avro": ("pyruhvro",),
    "geo": ("h3", "h3ronpy"),
    "http": ("httpx",),
    "ingest": ("fsspec",),
    "dashboard": ("fastapi", "starlette", "socketio", "uvicorn", "websockets"),
    "transit": ("headrace_transit",),
    "report": ("matplotlib",),
    "protobuf": ("grpc_tools",),
    "testing": ("hypothesis", "yaml"),
}
#: The extras that an extra includes.
INCLUDES: dict[str, tuple[str, ...]] = {
    "spark": ("kafka",),
    "ingest": ("kafka",),
    "dashboard": ("geo", "kafka"),
}


def modules_of(extra: str) -> tuple[str, ...]:
    """The modules that `pip install 'headrace[extra]'` brings, with those of the extras that it includes.

    >>> modules_of("ingest")
    ('fsspec', 'confluent_kafka', 'prometheus_client', 'psutil')
    """
    found = [*MODULES[extra], *(module for other in INCLUDES.get(extra, ()) for module in modules_of(other))]
    return tuple(dict.fromkeys(found))


def missing(extra: str) -> tuple[str, ...]:
    """The modules of an extra that are not installed; empty if it can be used.

    >>> missing("kafka")
    ()
    """
    return tuple(module for module in modules_of(extra) if find_spec(module) is None)


def require(*extras: str, by: str) -> None:
    """Check that extras are installed; nothing is imported for it.

    Args:
        extras: Their names.
        by: Who needs them, as the message says it: "headrace.spark", "`headrace run`".

    Raises:
        MissingExtraError: One is not; the message names the modules, the hint the command.

    >>> require("kafka", by="headrace.kafka")
    """
    lacking = {extra: modules for extra in extras if (modules := missing(extra))}
    if not lacking:
        return
    names = ", ".join(dict.fromkeys(module for modules in lacking.values() for module in modules))
    raise MissingExtraError(f"{by} needs packages that are not installed: {names}", extras=tuple(lacking))


def explain(error: ModuleNotFoundError) -> MissingExtraError | None:
    """The error that names the extra, if the module that was not found belongs to one.

    >>> print(explain(ModuleNotFoundError("No module named 'h3.api'", name="h3.api")))
    The module h3 is not installed. Install it: pip install 'headrace[geo]'
    >>> explain(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    True
    """
    module = (error.name or "").partition(".")[0]
    for extra, modules in MODULES.items():
        if module in modules:
            return MissingExtraError(f"The module {module} is not installed", extras=(extra,))
    return None
