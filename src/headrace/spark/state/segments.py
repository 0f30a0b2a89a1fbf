"""Segments of one key group in Spark's state store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.engine.group import CLOCK
from headrace.spark.state.compression import from_store, stamp_of, stamped, to_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.spark.state.state_cache import Place, Shelf

#: What a call to Spark's state store costs beside its bytes, in rows of keyed state: each is a message to the Java
#: process and an answer. Few large pages are then cheaper than many small ones.
CALL_COST = 1_000
#: A file on the shelf stays as long as one segment in it is in use; so many older ones at most.
_PAGES = 32


class Store(Protocol):
    """What holds segments in their stored form."""

    def read(self, name: str) -> bytes | None:
        """Return the stored form, or None where there is none."""
        ...

    def write(self, name: str, value: bytes) -> None:
        """Keep the stored form."""
        ...

    def remove(self, name: str) -> None:
        """Forget it."""
        ...


class MapStore:
    """A map state of Spark's state store, for the key that Spark has set."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def read(self, name: str) -> bytes | None:
        """Return the stored form, or None where there is none."""
        found = self._state.getValue((name,))
        return None if found is None else bytes(found[0])

    def write(self, name: str, value: bytes) -> None:
        """Keep the stored form."""
        self._state.updateValue((name,), (value,))

    def remove(self, name: str) -> None:
        """Forget it."""
        self._state.removeKey((name,))


class StoreSegments:
    """Segments that are read from the store and written to it one by one."""

    call_cost = CALL_COST

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, name: str) -> bytes | None:
        """Return the segment, or None where there is none."""
        found = self._store.read(name)
        return None if found is None else from_store(found)

    def put(self, name: str, value: bytes) -> None:
        """Keep the segment."""
        self._store.write(name, to_store(value))

    def delete(self, name: str) -> None:
        """Forget the segment."""
        self._store.remove(name)


class ShelvedSegments:
    """Segments for one turn, read from the shelf where the store says that they are there.

    The clock of the group, which every turn reads first and writes, carries the stamp: no call to the store is added.

    Args:
        store: The truth.
        shelf: Where the turn before may have left what it wrote.
    """

    call_cost = CALL_COST

    def __init__(self, store: Store, shelf: Shelf) -> None:
        self._store = store
        self._shelf = shelf
        self._held: dict[str, bytes | None] = {}
        self._places: dict[str, Place | None] = {}
        self._pages: set[str] = set()
        self._changed = False

    def get(self, name: str) -> bytes | None:
        """Return the segment, or None where there is none."""
        found = self._stored(name)
        return None if found is None else from_store(found)

    def put(self, name: str, value: bytes) -> None:
        """Keep the segment."""
        stored = to_store(value)
        if name != CLOCK:  # it waits for its stamp
            self._store.write(name, stored)
        self._held[name] = stored
        self._changed = True

    def delete(self, name: str) -> None:
        """Forget the segment."""
        self._store.remove(name)
        self._held[name] = None
        self._changed = True

    def close(self) -> None:
        """End the turn: leave what it wrote or read on the shelf, and its stamp in the store."""
        if not self._changed:
            return
        clock = self._stored(CLOCK)
        if clock is None:
            return
        others = self._untouched()
        fresh = {name: value for name, value in self._held.items() if name != CLOCK}
        stamp = self._shelf.put(fresh, others)
        self._store.write(CLOCK, stamped(clock, stamp))
        self._shelf.discard(self._pages - set(_pages(others)))

    def _stored(self, name: str) -> bytes | None:
        if name in self._held:
            return self._held[name]
        if name in self._places:
            place = self._places[name]
            if place is None:  # held, so that the next turn knows it as well
                self._held[name] = None
                return None
            at_hand = self._shelf.read(place)
            if at_hand is not None:
                return at_hand
        found = self._store.read(name)
        if name == CLOCK and found is not None:
            stamp, found = stamp_of(found)
            self._open(stamp)
        self._held[name] = found
        return found

    def _open(self, stamp: str | None) -> None:
        if stamp is not None:
            self._places = self._shelf.index(stamp)
            self._pages = {stamp, *_pages(self._places)}

    def _untouched(self) -> dict[str, Place]:
        """Tell where those segments are that this turn has not written, in the newest files: older ones come first."""
        left = {name: place for name, place in self._places.items() if place is not None and name not in self._held}
        newest = list(_pages(left))[-_PAGES:]
        return {name: place for name, place in left.items() if place.page in newest}


def _pages(places: Mapping[str, Place | None]) -> dict[str, None]:
    """Tell the files that segments are in, in the order in which they are named."""
    return dict.fromkeys(place.page for place in places.values() if place is not None)
