"""How large an installation has to be: a model of cores, memory, partitions, disk and network.

The model is fitted to measurements of whole runs on two cores (`scripts/sizing.py`, `fitted.json`), and says how far it
was from measurements that it had not seen. Beyond two cores nothing was measured: there it is a straight line.

>>> answer = size(Load(events_per_second=11_200, keys=20_000, window=300.0))
>>> answer.cores, answer.extrapolated
(1, False)
"""

from __future__ import annotations

from headrace.sizing.model import KINDS, Kind, Load, Size, size

__all__ = ["KINDS", "Kind", "Load", "Size", "size"]
