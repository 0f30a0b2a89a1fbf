"""How vehicles drive from one halt to the next: legs of constant acceleration.

A **leg** leads from a halt (a stop, a red light) to the next one. Its speed over time is a chain of straight lines:
pull away briskly, then less so; drift along with the traffic, now faster, now slower; brake gently, then firmly; stand.
Each phase has a constant acceleration, so distance is a parabola in it.

The figures are those of one tram and one bus of HSL that were recorded in 2020 (`docs/calibration.md`); trains and
metro have no recording and are guessed.

One rule has no exception: **between a speed of 10 m/s and one below 1 m/s lie more than ten seconds.** So whoever
brakes from 10 m/s to a stop within ten seconds makes an emergency stop, and the simulator's list of those is complete.
The one bus and one tram of the recording keep that rule but for one stop in 57; a leg that would break it is driven at
less than 10 m/s instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from headrace_transit.simulator.network import Mode

    Floats = NDArray[np.float64]
    #: Draws numbers of [0, 1), one per leg, for a purpose.
    Draw = Callable[[str], Floats]

#: Kinds of phases.
STAND, ACCELERATE, CRUISE, BRAKE = range(4)
#: The phases of a leg: two of pulling away, some of drifting, two of braking, and standing at its end.
_DRIFTS = 6
KINDS = np.array([ACCELERATE] * 2 + [CRUISE] * _DRIFTS + [BRAKE] * 2 + [STAND], dtype=np.int8)
PHASES = len(KINDS)
_BRAKES = PHASES - 3

#: Delays bend time by at most so much: a vehicle may be faster than planned by this factor.
MOST_RATE = 1.08
#: Planned speeds that may become 10 m/s and 1 m/s, and the planned seconds that have to lie between them: ten true
#: ones, and a little for a vehicle that is still recovering from an emergency stop.
_FAST, _SLOW, _APART = 10.0 / MOST_RATE, 1.0 / MOST_RATE, 11.2
#: Share of the speed that the first, brisk part of pulling away reaches.
_BRISK = 0.55
#: The fastest drift, in shares of the speed that a leg aims at.
_FASTER = 1.08
#: Metres per second squared in traffic: what is aimed at, and what is driven at most.
_USUAL_TURN, _HARDEST_TURN = 0.8, 1.0


@dataclass(frozen=True, slots=True)
class Habits:
    """How vehicles of one mode drive.

    Args:
        speed: Slowest and fastest speed that a leg aims at, in metres per second.
        eager: The higher, the fewer legs aim at the fastest.
        drift: The least share of that speed that a vehicle falls back to on its way.
        traffic: How often it is slowed down further, to a third or two thirds of it.
        pull: Acceleration when pulling away, least and most; it is less from about half the speed on.
        brake: Deceleration at the end of a leg, least and most; it is less in the beginning.
        doors: Seconds that doors stay open at a stop, least and most.
        passed: Share of the stops that are passed because nobody gets on or off.
        lights: Share of the stretches between two stops that have a traffic light.
        red: Share of the lights that are red.
        layover: Seconds at the first stop before a trip begins.
        radius: Metres before a stop at which a vehicle is due and at which it arrives, and behind it at which it has
            departed.
    """

    speed: tuple[float, float]
    eager: float
    drift: float
    traffic: float
    pull: tuple[float, float]
    brake: tuple[float, float]
    doors: tuple[float, float]
    passed: float
    lights: float
    red: float
    layover: float
    radius: tuple[float, float, float]


HABITS: dict[Mode, Habits] = {
    "tram": Habits((4.5, 14.5), 1.2, 0.62, 0.15, (0.7, 1.6), (0.6, 1.3), (7, 16), 0.2, 0.75, 0.55, 280, (84, 34, 28)),
    "bus": Habits((7.0, 20.0), 1.2, 0.62, 0.15, (0.7, 1.6), (0.6, 1.5), (5, 18), 0.3, 0.75, 0.5, 300, (84, 34, 55)),
    "train": Habits((22.0, 33.0), 1.0, 0.93, 0, (0.5, 0.8), (0.5, 0.75), (20, 40), 0, 0, 0, 420, (400, 150, 150)),
    "metro": Habits((17.0, 22.0), 1.0, 0.9, 0, (0.7, 1.0), (0.6, 0.9), (15, 28), 0, 0, 0, 220, (250, 100, 100)),
}


class Legs(NamedTuple):
    """What is asked for: one row per leg."""

    length: Floats
    slowest: Floats
    fastest: Floats
    eager: Floats
    drift: Floats
    traffic: Floats
    pull: tuple[Floats, Floats]
    brake: tuple[Floats, Floats]


class Driven(NamedTuple):
    """Legs as they are driven, a column per phase: seconds, speed at its beginning, acceleration, metres."""

    seconds: Floats
    speed: Floats
    acceleration: Floats
    metres: Floats


def drive(legs: Legs, draw: Draw) -> Driven:
    """Plan the speed of each leg, such that it ends where it should.

    Args:
        legs: The legs.
        draw: Chance; the same purpose always gives the same numbers.
    """
    top = legs.slowest + (legs.fastest - legs.slowest) * draw("speed") ** legs.eager
    top = np.minimum(top, legs.fastest / _FASTER)
    pull = _between(legs.pull, draw("pull"))
    brake = _between(legs.brake, draw("brake"))
    # Speeds at the beginning of each drift and at the end of the last, in shares of the speed aimed at.
    drifts = np.stack([_drift(legs, draw(f"drift {k}"), draw(f"traffic {k}")) for k in range(_DRIFTS + 1)], axis=1)
    for attempt in range(16):
        planned = _plan(legs.length, top, pull, brake, drifts)
        used = planned.metres[:, [0, 1, _BRAKES, _BRAKES + 1]].sum(axis=1)
        too_long = used > 0.85 * legs.length
        hasty = _hasty(planned) & ~too_long
        jerky = np.abs(planned.acceleration[:, 2:_BRAKES]).max(axis=1) > _HARDEST_TURN
        if not (too_long.any() or hasty.any() or jerky.any()):
            break
        top = np.where(too_long, top * np.sqrt(0.8 * legs.length / used), top)
        drifts[:, -1] = np.where(jerky, drifts[:, 0], drifts[:, -1])
        if attempt < 6:
            brake = np.where(hasty, 0.92 * brake, brake)
        else:
            fastest = planned.speed.max(axis=1)
            top = np.where(hasty, top * np.minimum(0.98, 0.97 * _FAST / np.maximum(fastest, 1e-9)), top)
    return planned


def _drift(legs: Legs, draw: Floats, traffic: Floats) -> Floats:
    usual = legs.drift + (_FASTER - legs.drift) * draw
    return np.where(traffic < legs.traffic, 0.35 + 0.35 * draw, usual)


def _plan(length: Floats, top: Floats, pull: Floats, brake: Floats, drifts: Floats) -> Driven:
    speeds = top[:, None] * drifts
    first, last = speeds[:, 0], speeds[:, -1]
    brisk = _BRISK * first
    # Firm braking is for low speeds: at more than that it would be an emergency.
    firm = np.minimum(0.6 * last, 5.5)
    # The second part of pulling away and the first of braking are half as hard.
    ends = [brisk**2 / (2 * pull), (first**2 - brisk**2) / pull, (last**2 - firm**2) / brake, firm**2 / (2 * brake)]
    left = np.maximum(length - sum(ends), 0.02 * length)
    part = left / _DRIFTS
    speeds = _smoothed(speeds, 2 * _USUAL_TURN * part)
    zero = np.zeros_like(top)
    speed = np.column_stack([zero, brisk, speeds, firm])
    following = np.column_stack([speed[:, 1:], zero])
    metres = np.column_stack([*ends[:2], np.repeat(part[:, None], _DRIFTS, axis=1), *ends[2:]])
    seconds = 2 * metres / np.maximum(speed + following, 1e-9)
    acceleration = (following - speed) / np.maximum(seconds, 1e-9)
    return Driven(seconds, speed, acceleration, metres)


def _smoothed(speeds: Floats, reach: Floats) -> Floats:
    """Bring each speed so near to its neighbours that the way between them is long enough; both ends stay."""
    smooth = speeds.copy()
    for here, other in [(k, k - 1) for k in range(1, _DRIFTS)] + [(k, k + 1) for k in range(_DRIFTS - 1, 0, -1)]:
        near = smooth[:, other] ** 2
        low, high = np.sqrt(np.maximum(near - reach, 0.1 * near)), np.sqrt(near + reach)
        smooth[:, here] = np.clip(smooth[:, here], low, high)
    return smooth


def _hasty(planned: Driven) -> NDArray[np.bool_]:
    """Tell which legs come from a high speed to a stop too soon; only speeds that count as high are looked at."""
    speed = np.concatenate([planned.speed, np.zeros((len(planned.speed), 1))], axis=1)
    fast = speed >= _FAST
    # The last knot at which the vehicle is fast; somewhere behind it the line falls below.
    moving = PHASES - 1
    last = moving - np.argmax(fast[:, ::-1], axis=1)
    rows = np.arange(len(speed))
    inner = np.minimum(last, moving - 1)
    falling = np.maximum(-planned.acceleration[rows, inner], 1e-9)
    in_phase = planned.seconds[rows, inner] - (speed[rows, inner] - _FAST) / falling
    elapsed = np.cumsum(planned.seconds, axis=1)
    rest = elapsed[:, -1] - elapsed[rows, inner]
    standing = _SLOW / np.maximum(-planned.acceleration[:, -1], 1e-9)
    result: NDArray[np.bool_] = fast.any(axis=1) & (in_phase + rest - standing < _APART)
    return result


def _between(bounds: tuple[Floats, Floats], draw: Floats) -> Floats:
    return bounds[0] + (bounds[1] - bounds[0]) * draw
