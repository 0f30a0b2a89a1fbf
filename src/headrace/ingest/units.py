"""Units: what a source counts in, as factors of the units that everybody else counts in.

A mapping may name the unit of a field; the column then holds metres, metres per second, degrees Celsius, and so on.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import ConfigError


class Unit(NamedTuple):
    """A unit of a source.

    Args:
        factor: What its numbers are multiplied by.
        offset: What is added then.
        gives: The unit of the column.
    """

    factor: float
    offset: float
    gives: str


UNITS: dict[str, Unit] = {
    "km": Unit(1000.0, 0.0, "m"),
    "cm": Unit(0.01, 0.0, "m"),
    "mm": Unit(0.001, 0.0, "m"),
    "ft": Unit(0.3048, 0.0, "m"),
    "in": Unit(0.0254, 0.0, "m"),
    "mi": Unit(1609.344, 0.0, "m"),
    "nmi": Unit(1852.0, 0.0, "m"),
    "km/h": Unit(1 / 3.6, 0.0, "m/s"),
    "mph": Unit(0.44704, 0.0, "m/s"),
    "kn": Unit(1852 / 3600, 0.0, "m/s"),
    "ft/min": Unit(0.3048 / 60, 0.0, "m/s"),
    "degF": Unit(5 / 9, -160 / 9, "degC"),
    "K": Unit(1.0, -273.15, "degC"),
    "rad": Unit(57.29577951308232, 0.0, "deg"),
    "g": Unit(0.001, 0.0, "kg"),
    "lb": Unit(0.45359237, 0.0, "kg"),
    "hPa": Unit(100.0, 0.0, "Pa"),
    "bar": Unit(100_000.0, 0.0, "Pa"),
    "psi": Unit(6894.757293168, 0.0, "Pa"),
    "kWh": Unit(3_600_000.0, 0.0, "J"),
    "ms": Unit(0.001, 0.0, "s"),
    "min": Unit(60.0, 0.0, "s"),
    "h": Unit(3600.0, 0.0, "s"),
    "percent": Unit(0.01, 0.0, "1"),
}


def unit(name: str) -> Unit:
    """Find a unit.

    >>> unit("ft")
    Unit(factor=0.3048, offset=0.0, gives='m')

    Raises:
        ConfigError: There is no such unit.
    """
    if name not in UNITS:
        raise ConfigError(f"unit {name!r} is not known", hint=f"There are: {', '.join(UNITS)}; or give scale, offset.")
    return UNITS[name]
