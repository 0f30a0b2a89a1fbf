"""`Delivery`: what a reader of results may rely on after a crash."""

from __future__ import annotations

from typing import Literal, get_args

#: Every result once; every result, but some twice; none twice, but some lost.
Delivery = Literal["exactly_once", "at_least_once", "at_most_once"]
#: The promises, the strongest first.
DELIVERIES: tuple[Delivery, ...] = get_args(Delivery)
