"""Settings: one TOML file, environment variables, flags.

A setting has a key such as `broker.port` and one value. Sources are read in this order, and a later one wins:

1. the default, which is written beside the setting in this module;
2. the file: `headrace.toml` in the working directory, or the one that `--config` or `HEADRACE_CONFIG` names;
3. the environment: `HEADRACE_BROKER__PORT=9093`, two underscores between section and name;
4. flags: `--bootstrap HOST` of a command, or `--set broker.port=9093` before any command.

Settings are checked as a whole before anything starts. An unknown key or a bad value is a `ConfigError` that names the
source, the key, the value and what is allowed there. `Settings.origin` tells afterwards where each value came from.
Passwords are `SecretStr`: they are never printed, neither by `headrace config` nor in an error.

Relative paths in the file are relative to the file; elsewhere they are relative to the working directory.
"""

from __future__ import annotations

from typing import Any

from headrace.config.sections import (
    KEYS,
    SECTIONS,
    BrokerSettings,
    DashboardSettings,
    Number,
    PathSettings,
    Section,
    Setting,
    SparkSettings,
    setting,
)
from headrace.config.settings import Settings
from headrace.config.sources import Origin
from headrace.moved import moved_name

__all__ = [
    "Settings",
    "Origin",
    "BrokerSettings",
    "SparkSettings",
    "DashboardSettings",
    "PathSettings",
    "Section",
    "setting",
    "Number",
    "Setting",
    "KEYS",
    "SECTIONS",
]


def __getattr__(name: str) -> Any:
    return moved_name("headrace.config", name)
