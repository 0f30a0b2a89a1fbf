"""State of many keys, of which a turn needs only a few: one row per key, in pages by the hash of the key.

A turn reads the pages of the keys that have rows and of those whose time is due, and writes the pages in which a row
changed. How many pages there are follows the number of keys and the way they are used (linear hashing: the number
grows or shrinks by some pages in a turn, and only these and the pages they are split from are rewritten):

- Where a turn needs a small part of the keys, a page has about `PAGE_KEYS` keys. Reading one page for each key that is
  needed then costs less than reading all keys.
- Where a turn needs many of the keys, nearly all pages would be read anyway, and few large ones cost less: a page has
  about `LARGE_PAGE_KEYS`.

The **directory** is one small segment: a record, and for each page the earliest time at which one of its keys is due.
It takes 8 bytes for each page. A page is an Arrow record batch without its schema, which is a segment of its own that
all pages share: a turn joins the pages that it needs to one Arrow stream and reads that at once.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from headrace.engine.keygroups import key_hashes
from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.engine.state import Segments

#: A time that never comes.
NEVER: Final = 2**63 - 1

#: The column with the time at which a key is due although it has no rows; `NEVER` where there is no such time.
DUE: Final = "#due"

#: Keys of a page where a turn needs few of the keys, and where it needs many.
PAGE_KEYS: Final = 64
LARGE_PAGE_KEYS: Final = 4_096
#: With more keys than this for each key that a turn needs, pages become small; with fewer than that, large.
_MANY_KEYS: Final = 256
_FEW_KEYS: Final = 64
#: How fast the mean of the keys that a turn needs follows the last turn.
_FOLLOW: Final = 0.25
#: Pages that may be added or removed in any turn; more if there are many pages, or many new keys.
_STEP: Final = 16

_DIRECTORY_MARK: Final = b"HD1\n"
_PAGE_MARK: Final = b"HG1\n"
_SCHEMA_NAME: Final = 8
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
#: Key groups are told apart by the low bits of a hash, so pages use others.
_SHIFT: Final = np.uint64(16)


class KeyedPages:
    """The keys of one operator on one key group; made anew in every turn.

    A turn calls `load` once, changes what it was given, and calls `save` once.

    Args:
        segments: Where they are kept.
        key: The key columns.
        name: Begins the name of every segment.

    >>> from headrace.engine.state import MemorySegments
    >>> segments = MemorySegments()
    >>> counts = pl.DataFrame({"key": ["a", "b"], "n": [1, 1], DUE: [NEVER, 10]})
    >>> pages = KeyedPages(segments, ["key"])
    >>> pages.save(counts, np.full(2, -1))
    >>> pages = KeyedPages(segments, ["key"])
    >>> pages.load(key_hashes(counts[:1], ["key"]), 0).select("key", "n").rows()
    [('a', 1)]
    >>> pages.save(counts[:0], np.empty(0, dtype=np.int64), gone=np.array([0]))
    >>> pages = KeyedPages(segments, ["key"])
    >>> pages.load(key_hashes(counts[:1], ["key"]), 10).select("key", "n").rows(), pages.count
    ([('b', 1)], 1)
    """

    def __init__(self, segments: Segments, key: Sequence[str], name: str = "keys") -> None:
        self._segments = segments
        self._key = list(key)
        self._name = name
        self._saved = segments.get(f"{name}/directory")
        record, self._due = _read_directory(self._saved)
        #: How many keys have state.
        self.count: int = record.get("keys", 0)
        self._needed: float = record.get("needed", 0.0)
        self._small: bool = record.get("small", False)
        self._schema_name: str = record.get("schema", "")
        #: The keys of all pages that were read, their hashes, and which of them were given to the caller.
        self._frame: pl.DataFrame | None = None
        self._hashes: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._loaded: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._read_pages: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def load(self, hashes: NDArray[np.uint64], time: int) -> pl.DataFrame | None:
        """Give the state of some keys, and of those that are due.

        Args:
            hashes: The hashes of the keys (`key_hashes`). Another key with the same hash comes along.
            time: Keys that are due at this time or before come along.

        Returns:
            One row for each key that has state; None if there is none.
        """
        wanted = np.unique(hashes)
        self._need(len(wanted))
        self._read(np.union1d(_page_of(wanted, len(self._due)), np.flatnonzero(self._due <= time)))
        if self._frame is None:
            return None
        mine = np.isin(self._hashes, wanted) | (self._frame[DUE].to_numpy() <= time)
        self._loaded = np.flatnonzero(mine)
        return self._frame[self._loaded] if len(self._loaded) else None

    def load_all(self) -> pl.DataFrame | None:
        """Give the state of all keys."""
        self._read(np.arange(len(self._due)))
        self._loaded = np.arange(len(self._hashes))
        return self._frame

    def save(self, frame: pl.DataFrame, places: NDArray[np.int64], gone: NDArray[np.int64] | None = None) -> None:
        """Keep the new state of keys. What was loaded and is not named here stays as it is.

        Args:
            frame: One row for each key whose state is new, with the key columns, `DUE`, and any others.
            places: For each of these rows, the row that the key had in what was loaded; -1 if it had no state.
            gone: Rows of what was loaded whose keys have no state any more.
        """
        gone = np.empty(0, dtype=np.int64) if gone is None else gone
        known = places >= 0
        replaced = self._loaded[np.concatenate([places[known], gone])]
        self.count += int((~known).sum()) - len(gone)
        hashes = key_hashes(frame, self._key)
        changed = np.concatenate([hashes, self._hashes[replaced]])
        moved = self._resize(len(changed))
        if len(changed) or len(moved):
            dirty = np.union1d(_page_of(changed, len(self._due)), moved)
            stay = np.isin(_page_of(self._hashes, len(self._due)), dirty)
            stay[replaced] = False
            parts = [frame := storable(frame)] if frame.height else []
            if self._frame is not None and stay.any():
                parts.append(self._frame[np.flatnonzero(stay)])
            self._write(parts, np.concatenate([hashes, self._hashes[stay]]), dirty)
        self._write_directory()

    # How many pages

    def _need(self, keys: int) -> None:
        """Take down how many keys a turn needs; a turn without rows says nothing."""
        if keys:
            self._needed += (keys - self._needed) * (_FOLLOW if self._needed else 1.0)

    def _resize(self, changes: int) -> NDArray[np.int64]:
        """Set the number of pages; returns the pages that must be rewritten for it, after reading what they get."""
        pages = len(self._due)
        if self.count > _MANY_KEYS * self._needed:
            self._small = True
        elif self.count < _FEW_KEYS * self._needed:
            self._small = False
        wanted = max(1, -(-self.count // (PAGE_KEYS if self._small else LARGE_PAGE_KEYS)))
        step = max(_STEP, pages // 4, changes // PAGE_KEYS)
        after = pages
        if wanted > pages:
            after = min(wanted, pages + step)
        elif 2 * wanted < pages:
            after = max(wanted, pages - step)
        if after == pages:
            return np.empty(0, dtype=np.int64)
        least = min(pages, after)
        added = np.arange(least, max(pages, after), dtype=np.int64)
        # A page gets its keys from the one before it in the order of splits, or gives them back to it.
        sources, above = added, added >= least
        while above.any():
            sources = np.where(above, _split_from(sources), sources)
            above = sources >= least
        moved = np.union1d(sources, added)
        self._read(np.setdiff1d(moved[moved < pages], self._read_pages))
        for page in range(after, pages):
            if self._due[page] != _EMPTY:
                self._segments.delete(self._page(page))
        self._due = np.concatenate([self._due[:after], np.full(max(0, after - pages), _EMPTY, dtype=np.int64)])
        return moved[moved < after]

    # Segments

    def _page(self, number: int) -> str:
        return f"{self._name}/{number}"

    def _read(self, pages: NDArray[np.int64]) -> None:
        """Read pages, after those that were read before."""
        self._read_pages = np.union1d(self._read_pages, pages)
        by_schema: dict[str, list[bytes]] = {}
        for page in pages[self._due[pages] != _EMPTY].tolist():
            value = self._segments.get(self._page(page))
            if value is None or value[:4] != _PAGE_MARK:
                found = "is missing" if value is None else f"starts with {value[:4]!r}"
                raise StateError(
                    f"page {page} of the saved keys {found}",
                    hint="The checkpoint is damaged; restore it from a copy, or start the job afresh.",
                )
            end = 4 + _SCHEMA_NAME
            by_schema.setdefault(value[4:end].decode("ascii"), []).append(value[end:])
        if by_schema:
            parts = [] if self._frame is None else [self._frame]
            parts += [self._parsed(schema, batches) for schema, batches in by_schema.items()]
            self._frame = _stacked(parts)
            self._hashes = key_hashes(self._frame, self._key)

    def _parsed(self, schema_name: str, batches: list[bytes]) -> pl.DataFrame:
        schema = self._segments.get(f"{self._name}/schema/{schema_name}")
        try:
            if schema is None:
                raise StateError("the schema of saved keys is missing")
            return pl.read_ipc_stream(io.BytesIO(b"".join([schema, *batches, _END_OF_STREAM]))).rechunk()
        except (PolarsError, OSError, StateError) as problem:
            raise StateError(
                f"{len(batches)} pages of saved keys cannot be read: {problem}",
                hint="The checkpoint is damaged; restore it from a copy, or start the job afresh.",
            ) from problem

    def _write(self, parts: list[pl.DataFrame], hashes: NDArray[np.uint64], dirty: NDArray[np.int64]) -> None:
        """Write pages.

        Args:
            parts: All keys of these pages.
            hashes: Their hashes.
            dirty: The pages.
        """
        page_of = _page_of(hashes, len(self._due))
        order = np.argsort(page_of, kind="stable")
        starts = np.searchsorted(page_of[order], dirty, side="left")
        ends = np.searchsorted(page_of[order], dirty, side="right")
        if parts:
            frame = _stacked(parts)[order]
            due = frame[DUE].to_numpy()
            table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
            (batch,) = table.to_batches()
            head = _PAGE_MARK + self._keep_schema(table.schema.serialize().to_pybytes())
        for page, start, end in zip(dirty.tolist(), starts.tolist(), ends.tolist(), strict=True):
            if start < end:
                value = head + batch.slice(start, end - start).serialize().to_pybytes()
                self._segments.put(self._page(page), value)
                self._due[page] = due[start:end].min()
            elif self._due[page] != _EMPTY:
                self._segments.delete(self._page(page))
                self._due[page] = _EMPTY

    def _keep_schema(self, schema: bytes) -> bytes:
        """Keep the schema of pages under a name that follows from it; returns the name."""
        name = hashlib.sha256(schema).hexdigest()[:_SCHEMA_NAME]
        if name != self._schema_name:
            self._segments.put(f"{self._name}/schema/{name}", schema)
            self._schema_name = name
        return name.encode("ascii")

    def _write_directory(self) -> None:
        record = {
            "keys": self.count,
            "needed": round(self._needed, 1),
            "small": self._small,
            "schema": self._schema_name,
        }
        head = json.dumps(record, separators=(",", ":")).encode()
        value = b"".join([_DIRECTORY_MARK, struct.pack("<I", len(head)), head, self._due.tobytes()])
        if value != self._saved and (self.count or self._saved is not None):
            self._segments.put(f"{self._name}/directory", value)
            self._saved = value


#: Stands in the directory for a page without keys; such a page has no segment. No key is due after `NEVER`, so it is
#: found by being one that no time reaches and no key has.
_EMPTY: Final = NEVER - 1


def _read_directory(value: bytes | None) -> tuple[dict[str, Any], NDArray[np.int64]]:
    if value is None:
        return {}, np.full(1, _EMPTY, dtype=np.int64)
    if value[:4] != _DIRECTORY_MARK:
        raise StateError(
            f"the directory of saved keys starts with {value[:4]!r}",
            hint="It was written by another version of Headrace; start the job afresh or with that version.",
        )
    end = 8 + struct.unpack("<I", value[4:8])[0]
    return json.loads(value[8:end]), np.frombuffer(value[end:], dtype=np.int64).copy()


def _page_of(hashes: NDArray[np.uint64], pages: int) -> NDArray[np.int64]:
    """Tell the page of each hash, by linear hashing."""
    power = 1 << (pages.bit_length() - 1)
    page = ((hashes >> _SHIFT) & np.uint64(2 * power - 1)).astype(np.int64)
    return np.where(page >= pages, page - power, page)


def _split_from(pages: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tell for pages from 1 which page each is split from."""
    powers = np.left_shift(1, np.frexp(pages.astype(np.float64))[1].astype(np.int64) - 1)
    return pages - powers


def _stacked(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Put rows of the same columns, in any order, below each other; a column that one lacks is null there."""
    return parts[0] if len(parts) == 1 else pl.concat(parts, how="diagonal")


def storable(frame: pl.DataFrame) -> pl.DataFrame:
    """Give columns of categories as text: a page has no room for a dictionary.

    >>> storable(pl.DataFrame({"line": ["7"]}, schema={"line": pl.Enum(["7", "9"])})).schema
    Schema([('line', String)])
    """
    casts = {name: plain for name, kind in frame.schema.items() if (plain := _plain(kind)) != kind}
    return frame.cast(casts) if casts else frame  # type: ignore[arg-type]


def restored(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Give columns the types that they had before `storable`."""
    casts = {name: kind for name, kind in schema.items() if name in frame.columns and frame.schema[name] != kind}
    return frame.cast(casts) if casts else frame  # type: ignore[arg-type]


def _plain(kind: pl.DataType) -> pl.DataType:
    if isinstance(kind, (pl.Categorical, pl.Enum)):
        return pl.String()
    if isinstance(kind, pl.List):
        return pl.List(_plain(kind.inner))  # type: ignore[arg-type]
    if isinstance(kind, pl.Array):
        return pl.Array(_plain(kind.inner), shape=kind.size)  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: _plain(field.dtype) for field in kind.fields})  # type: ignore[arg-type]
    return kind
