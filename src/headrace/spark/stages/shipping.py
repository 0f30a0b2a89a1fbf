"""What travels with every task, packed once by the driver and unpacked once by each worker process.

Spark sends a task its functions anew every time, and a worker unpacks all they hold. Plans of several jobs are large
for that: a batch of a tenth of a second should not begin with reading them again.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Packed(Generic[T]):
    """Something on its way to worker processes.

    >>> Packed.of({"a": 1}).open()
    {'a': 1}
    """

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def of(cls, thing: T) -> Packed[T]:
        """Pack something, functions of the user's own script included."""
        from pyspark import cloudpickle

        return cls(cloudpickle.dumps(thing))  # type: ignore[no-untyped-call]

    def open(self) -> T:
        """Give what was packed; the same object again in the same process."""
        return cast("T", _opened(self._content))


@lru_cache(maxsize=8)
def _opened(content: bytes) -> Any:
    return pickle.loads(content)  # noqa: S301 - it comes from our own driver, as the function around it does
