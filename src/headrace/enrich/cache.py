"""Answers that are kept: in memory, and in a file that survives a restart and is shared by the workers of a machine.

An entry is an answer (or the knowledge that there is none) and the moment at which it expires. The file is an SQLite
database; if it cannot be read or written (a full disk, a damaged file, another process that holds it for long), answers
are kept in memory only, and the log says so once: a cache must never be a reason to stop.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections import OrderedDict
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

Key = tuple[Any, ...]
#: The values of a key in the order of the columns; None: there are none.
Answer = tuple[Any, ...] | None

#: SQLite takes a limited number of parameters at once.
_CHUNK = 500
_BUSY_SECONDS = 0.2
_CLEAN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer, and until when it holds (seconds since the epoch)."""

    answer: Answer
    expires: float


class Cache:
    """Keeps answers by key.

    Args:
        path: The file; None: memory only.
        kind: What the answers are about, so that one file can serve several enrichments; answers of another kind are
            not seen.
        most: How many answers to keep in memory; in the file, ten times as many.
        clock: Seconds since the epoch, for tests.

    >>> cache = Cache(None, kind="stops")
    >>> cache.put({("a", 1): ("Pasila",), ("b", 2): None}, seconds=60)
    >>> found = cache.get([("a", 1), ("b", 2), ("c", 3)])
    >>> {key: entry.answer for key, entry in found.items()}
    {('a', 1): ('Pasila',), ('b', 2): None}
    """

    def __init__(
        self, path: Path | None, *, kind: str, most: int = 200_000, clock: Callable[[], float] = time.time
    ) -> None:
        self._kind = kind
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._memory: OrderedDict[Key, Entry] = OrderedDict()
        self._file = None if path is None else _File(path, kind, most * 10)

    def get(self, keys: Iterable[Key]) -> dict[Key, Entry]:
        """Give the entries of those keys that have one which holds."""
        now = self._clock()
        known: dict[Key, Entry] = {}
        missing: list[Key] = []
        with self._lock:
            for key in keys:
                entry = self._memory.get(key)
                if entry is None or entry.expires <= now:
                    missing.append(key)
                else:
                    self._memory.move_to_end(key)
                    known[key] = entry
        if missing and self._file is not None:
            loaded = self._file.get(missing, now)
            self._remember(loaded)
            known |= loaded
        return known

    def put(self, answers: Mapping[Key, Answer], *, seconds: float) -> None:
        """Keep answers for some seconds."""
        expires = self._clock() + seconds
        entries = {key: Entry(answer, expires) for key, answer in answers.items()}
        self._remember(entries)
        if self._file is not None:
            self._file.put(entries, self._clock())

    def close(self) -> None:
        """Let go of the file, for good; what comes later is kept in memory alone."""
        if self._file is not None:
            self._file.close()

    def _remember(self, entries: Mapping[Key, Entry]) -> None:
        with self._lock:
            for key, entry in entries.items():
                self._memory[key] = entry
                self._memory.move_to_end(key)
            while len(self._memory) > self._most:
                self._memory.popitem(last=False)


class _File:
    """The part of a cache that is on disk."""

    def __init__(self, path: Path, kind: str, most: int) -> None:
        self._path = path
        self._kind = kind
        self._most = most
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._usable = True
        self._cleaned = 0.0

    def get(self, keys: Sequence[Key], now: float) -> dict[Key, Entry]:
        """Read entries that hold."""

        def read(connection: sqlite3.Connection) -> dict[Key, Entry]:
            found: dict[Key, Entry] = {}
            by_text = {_text(key): key for key in keys}
            texts = list(by_text)
            for start in range(0, len(texts), _CHUNK):
                part = texts[start : start + _CHUNK]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, answer, expires FROM answers WHERE kind = ? AND expires > ? AND key IN ({marks})"  # noqa: S608 - marks only
                for text, answer, expires in connection.execute(query, (self._kind, now, *part)):
                    plain = json.loads(answer)
                    found[by_text[text]] = Entry(None if plain is None else tuple(plain), expires)
            return found

        return self._do(read) or {}

    def put(self, entries: Mapping[Key, Entry], now: float) -> None:
        """Write entries, and now and then remove those that have expired or are too many."""
        rows = [(self._kind, _text(key), json.dumps(entry.answer), entry.expires) for key, entry in entries.items()]

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)
                if now - self._cleaned > _CLEAN_SECONDS:
                    self._cleaned = now
                    connection.execute("DELETE FROM answers WHERE expires <= ?", (now,))
                    connection.execute(
                        "DELETE FROM answers WHERE rowid IN "
                        "(SELECT rowid FROM answers ORDER BY expires DESC LIMIT -1 OFFSET ?)",
                        (self._most,),
                    )

        self._do(write)

    def close(self) -> None:
        with self._lock:
            self._usable = False  # an answer that comes later would open the file again, for nobody to close
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _do(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Work on the file; None where that is not possible."""
        with self._lock:
            if not self._usable:
                return None
            try:
                if self._connection is None:
                    self._connection = self._opened()
                return work(self._connection)
            except sqlite3.OperationalError as problem:
                if "locked" in str(problem) or "busy" in str(problem):
                    return None  # another worker writes; the answer is asked for again, or kept in memory
                self._give_up(problem)
            except (sqlite3.Error, OSError, ValueError) as problem:
                self._give_up(problem)
            return None

    def _opened(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undo:
            connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, check_same_thread=False)
            undo.callback(connection.close)
            with closing(connection.cursor()) as cursor:
                # Readers and one writer at once; after a crash of the machine the last answers may be missing, no more.
                cursor.execute("PRAGMA journal_mode = WAL")
                cursor.execute("PRAGMA synchronous = NORMAL")
                cursor.execute(
                    "CREATE TABLE IF NOT EXISTS answers "
                    "(kind TEXT, key TEXT, answer TEXT, expires REAL, PRIMARY KEY (kind, key))"
                )
            connection.commit()
            undo.pop_all()  # it is in order, and stays open
        return connection

    def _give_up(self, problem: Exception) -> None:
        self._usable = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        log.warning(
            "the cache %s cannot be used (%s): answers are kept in memory until the next start", self._path, problem
        )


def _text(key: Key) -> str:
    return json.dumps(key, default=str)
