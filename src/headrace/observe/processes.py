"""The processes of a run on this machine, and the memory that they take: driver, Java, Python workers."""

from __future__ import annotations

import psutil

DRIVER, JAVA, WORKER = "driver", "java", "worker"


def memory_by_kind() -> dict[str, list[int]]:
    """Tell the resident bytes of this process and of those that it has started, by kind.

    Processes that are neither Java nor Python (a shell in between) count as workers, too. One that ends meanwhile is
    left out.

    >>> memory_by_kind()["driver"][0] > 1_000_000
    True
    """
    own = psutil.Process()
    sizes: dict[str, list[int]] = {DRIVER: [own.memory_info().rss], JAVA: [], WORKER: []}
    for child in own.children(recursive=True):
        try:
            with child.oneshot():
                kind = JAVA if child.name().startswith("java") else WORKER
                sizes[kind].append(child.memory_info().rss)
        except psutil.Error:
            continue
    return sizes
