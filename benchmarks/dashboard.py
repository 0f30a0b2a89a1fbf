"""One dashboard process, 200 viewers, 10,000 cells that all change every 5 s; then the same with a viewer that stalls.

    python -m benchmarks.dashboard            # prints a table, writes benchmarks/results/dashboard.json

Everything is real: an embedded Kafka, `headrace dashboard` as a process of its own, a writer that commits the results
of a window in one transaction as a job does, and 200 websockets that speak Socket.IO. All of it shares this
machine's cores, so the processor time of each part is told.

- **Latency** of an update is measured per viewer and window: from the moment the writer's commit has returned to the
  moment that viewer has received the last message with cells of that window. (The reader polls, the server gathers for
  a tenth of a second, the message is encoded once and sent 200 times.)
- Viewers acknowledge every message, as the page does, but only one of them takes the messages apart, applies them as
  the protocol says and is compared with what was written, cell by cell; the others look at the first bytes.
- The **stalled** viewer subscribes and never reads again, so that its socket fills up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import h3
import httpx
import numpy as np
import polars as pl
import psutil
import websockets
from rich.console import Console
from rich.table import Table

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.events import Codec, Result
from headrace.kafka import Topics, TopicSpec
from headrace.kafka.producer import TransactionalProducer
from headrace_transit.jobs import all_jobs

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

    from headrace.kafka import Connection

RESULTS = Path(__file__).parent / "results" / "dashboard.json"
EVERY = 5.0
HEAD = re.compile(r'"window_end":\s?(\d+)')
VERSION = re.compile(r'"version":\s?(\d+)')
UTC_TIME = pl.Datetime("us", "UTC")

job = all_jobs()["vehicle-distribution"]

# -------------------------------------------------------------------- results, as a job writes them


def some_cells(count: int) -> list[int]:
    """So many cells around the middle of Helsinki."""
    middle = h3.latlng_to_cell(60.1711, 24.9415, 9)
    radius = 1
    while 3 * radius * (radius + 1) + 1 < count:
        radius += 1
    return [h3.str_to_int(cell) for cell in sorted(h3.grid_disk(middle, radius))[:count]]


def values(cells: list[int], number: int) -> pl.Series:
    """What is written in a round: different for every cell and round."""
    return pl.Series([(index * 7 + number) % 1000 for index in range(len(cells))], dtype=pl.Int64)


class Writer:
    """Writes a window of results in one transaction."""

    def __init__(self, connection: Connection, cells: list[int]) -> None:
        self._cells = cells
        self._codec = Codec()
        self._producer = TransactionalProducer(connection, transactional_id="benchmark")
        self._producer.prepare()

    def write(self, number: int, end: datetime) -> None:
        frame = pl.DataFrame({"cell": pl.Series(self._cells, dtype=pl.UInt64), "vehicles": values(self._cells, number)})
        keys = frame.get_column("cell").cast(pl.String)
        frame = frame.with_columns(
            pl.lit(end - timedelta(microseconds=1)).cast(UTC_TIME).alias("event_time"),
            pl.lit(datetime.now(UTC)).cast(UTC_TIME).alias("ingestion_time"),
            pl.lit(job.name).alias("job"),
            keys.alias("key"),
            pl.Series("idempotency_key", [f"{number}-{key}" for key in keys]),
            pl.lit(end - timedelta(seconds=30)).cast(UTC_TIME).alias("window_start"),
            pl.lit(end).cast(UTC_TIME).alias("window_end"),
            pl.lit("on_time").alias("pane_timing"),
            pl.lit(value=False).alias("is_retraction"),
        )
        with self._producer.transaction() as producer:
            for key, value in zip(keys, self._codec.encode(frame, Result).to_pylist(), strict=True):
                producer.send(job.result_topic, value, key=key.encode())


# -------------------------------------------------------------------- viewers


class Mirror:
    """The viewer that takes everything apart."""

    def __init__(self) -> None:
        self.shown: dict[str, int] = {}
        self.version = 0

    def take(self, event: str, message: dict[str, Any]) -> None:
        if event == "snapshot":
            self.shown = {}
        elif message["base"] != self.version:
            raise AssertionError(f"a gap: {message['base']} after {self.version}")
        for key in message.get("removed", ()):
            self.shown.pop(key, None)
        for group in message["groups"]:
            self.shown.update(zip(group["key"], group["values"]["vehicles"], strict=True))
        self.version = message["version"]


async def view(url: str, arrivals: list[tuple[float, int, int]], mirror: Mirror | None, ready: asyncio.Event) -> None:
    """Watch for ever, acknowledge everything, and note when cells of which window came."""
    async with websockets.connect(url, max_size=None, compression=None) as socket:
        await socket.recv()
        await socket.send("40")
        await socket.recv()
        await socket.send("42" + json.dumps(["subscribe", {"jobs": [job.name]}]))
        ready.set()
        async for text in socket:
            if not isinstance(text, str):
                continue
            if text == "2":
                await socket.send("3")
                continue
            event = text[4:12]
            if event == "pipeline":
                now = re.search(r'"now":\s?(\d+)', text[:200])
                await socket.send(f'42["received",{{"pipeline":{now[1] if now else 0}}}]')
            elif event in ("snapshot", 'changes"'):
                at = time.time()
                head = VERSION.search(text, 0, 300)
                window = HEAD.search(text, 0, 600)
                if window is not None:
                    arrivals.append((at, int(window[1]), len(text)))
                if mirror is not None:
                    kind, message = json.loads(text[2:])
                    mirror.take(kind, message)
                await socket.send(f'42["received",{{"job":"{job.name}","version":{head[1] if head else 0}}}]')


async def stall(url: str) -> None:
    """Subscribe, and never read again."""
    socket = await websockets.connect(url, max_size=None, compression=None, max_queue=1, ping_interval=None)
    await socket.recv()
    await socket.send("40")
    await socket.recv()
    await socket.send("42" + json.dumps(["subscribe", {"jobs": [job.name]}]))
    # The reading side of the socket is switched off: what comes stays in the kernel's buffers until they are full.
    socket.transport.pause_reading()
    await asyncio.sleep(3600)


def viewers(url: str, count: int, pipe: Pipe) -> None:
    """The process of the viewers; it is told what to do through the pipe, and gives what it saw."""

    async def work() -> None:
        arrivals: list[list[tuple[float, int, int]]] = [[] for _ in range(count)]
        mirror = Mirror()
        tasks = []
        for number in range(count):
            ready = asyncio.Event()
            tasks.append(asyncio.create_task(view(url, arrivals[number], mirror if number == 0 else None, ready)))
            await ready.wait()
        pipe.send("ready")
        while True:
            while not pipe.poll():
                await asyncio.sleep(0.05)
                for task in tasks:
                    if task.done():
                        task.result()
                        raise RuntimeError("a viewer has ended")
            order = pipe.recv()
            if order == "stall":
                tasks.append(asyncio.create_task(stall(url)))
                pipe.send("ready")
            elif order == "report":
                pipe.send((arrivals, dict(mirror.shown)))
                for part in arrivals:
                    part.clear()
            else:
                return

    asyncio.run(work())


# -------------------------------------------------------------------- the measurement


class Meter:
    """Processor time and memory of a process and its children, while a phase runs."""

    def __init__(self, **processes: int) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in processes.items()}

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._before = {name: self._seconds(process) for name, process in self._processes.items()}
        self.most = dict.fromkeys(self._processes, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        elapsed = time.monotonic() - self._began
        self.cores = {
            name: round((self._seconds(process) - self._before[name]) / elapsed, 3)
            for name, process in self._processes.items()
        }

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            for name, process in self._processes.items():
                self.most[name] = max(self.most[name], process.memory_info().rss)

    @staticmethod
    def _seconds(process: psutil.Process) -> float:
        used = process.cpu_times()
        return float(used.user + used.system)


class Watch:
    """How many viewers are behind at a time, by the dashboard's own metrics."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.most = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(2.0):
            text = httpx.get(f"{self._url}/metrics").text
            found = re.search(r"^headrace_dashboard_viewers_behind (\d+)", text, re.MULTILINE)
            self.most = max(self.most, int(found[1]) if found else 0)


def run_phase(writer: Writer, rounds: int, first: int, pipe: Pipe, meter: Meter) -> dict[str, Any]:
    """Write so many windows, 5 s apart, and see when the viewers had them."""
    committed: dict[int, float] = {}
    with meter:
        for number in range(first, first + rounds):
            begun = time.monotonic()
            now = int(time.time())
            end = datetime.fromtimestamp(now - now % 5, UTC)
            writer.write(number, end)
            committed[int(end.timestamp() * 1000)] = time.time()
            time.sleep(max(0.0, EVERY - (time.monotonic() - begun)))
    pipe.send("report")
    arrivals, shown = pipe.recv()
    latencies, bytes_, messages = [], [], 0
    missing = 0
    for seen in arrivals:
        last: dict[int, float] = {}
        for at, window, length in seen:
            last[window] = max(at, last.get(window, 0.0))
            bytes_.append(length)
            messages += 1
        missing += len(committed.keys() - last.keys())
        latencies += [last[window] - at for window, at in committed.items() if window in last]
    ordered = np.sort(np.array(latencies)) * 1000
    return {
        "windows": rounds,
        "viewers": len(arrivals),
        "updates": len(ordered),
        "updates_that_never_came": missing,
        "latency_ms": {
            f"p{100 * q:g}": round(float(ordered[int(np.ceil(q * len(ordered))) - 1]), 1) for q in (0.5, 0.9, 0.99)
        }
        | {"max": round(float(ordered[-1]), 1)},
        "messages": messages,
        "megabytes_sent": round(sum(bytes_) / 1e6, 1),
        "cores_used": meter.cores,
        "memory_megabytes": {name: round(most / 1e6, 1) for name, most in meter.most.items()},
        "shown": shown,
        "last_round": first + rounds - 1,
    }


def check(phase: dict[str, Any], cells: list[int]) -> None:
    """The viewer that took everything apart must show what was written last, all of it and nothing else."""
    shown = phase.pop("shown")
    wanted = dict(zip((h3.int_to_str(cell) for cell in cells), values(cells, phase.pop("last_round")), strict=True))
    if shown != wanted:
        raise AssertionError(f"{len(shown)} cells shown, {len(wanted)} written; not the same")
    phase["cells_checked"] = len(wanted)


def start_dashboard(connection: Connection, folder: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "headrace.cli", "dashboard", job.name, "--port", "0", "--json"]
    process = subprocess.Popen(
        [*command, "-b", connection.bootstrap], stdout=subprocess.PIPE, text=True, cwd=folder, env=os.environ
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def conditions(arguments: argparse.Namespace) -> dict[str, Any]:
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores_of_the_machine": os.cpu_count(),
        "cpu": model[1] if model else platform.processor(),
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("python-socketio", "uvicorn", "websockets", "confluent-kafka")},
        "cells": arguments.cells,
        "viewers": arguments.viewers,
        "seconds_between_windows": EVERY,
        "on_the_same_machine": "Kafka, dashboard, writer, viewers",
        "latency_is": "commit of the window's transaction to the last of its messages at a viewer",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10, help="windows per phase")
    parser.add_argument("--quick", action="store_true", help="little: to see that it works, not for figures")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.viewers, arguments.cells, arguments.rounds = 10, 500, 2
    told = conditions(arguments)
    cells = some_cells(arguments.cells)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with EmbeddedBroker(ServerSettings(data_dir=folder / "broker")) as broker:
            Topics(broker.connection).ensure([TopicSpec(name=job.result_topic, partitions=4)])
            writer = Writer(broker.connection, cells)
            process, url = start_dashboard(broker.connection, folder)
            address = url.replace("http", "ws", 1) + "/socket.io/?EIO=4&transport=websocket"
            context = multiprocessing.get_context("spawn")
            pipe, theirs = context.Pipe()
            crowd = context.Process(target=viewers, args=(address, arguments.viewers, theirs), daemon=True)
            try:
                crowd.start()
                assert pipe.recv() == "ready"
                assert crowd.pid is not None
                alone = round(psutil.Process(process.pid).memory_info().rss / 1e6, 1)
                meter = lambda: Meter(dashboard=process.pid, viewers=crowd.pid or 0, writer=os.getpid())  # noqa: E731
                # The first windows fill the boards and warm everything up; they do not count.
                check(run_phase(writer, 2, 0, pipe, meter()), cells)
                phases = {"all lively": run_phase(writer, arguments.rounds, 10, pipe, meter())}
                check(phases["all lively"], cells)
                pipe.send("stall")
                assert pipe.recv() == "ready"
                with Watch(url) as watch:
                    phases["one stalled"] = run_phase(writer, arguments.rounds, 1000, pipe, meter())
                check(phases["one stalled"], cells)
                phases["one stalled"]["viewers_behind_at_most"] = watch.most
            finally:
                if crowd.is_alive():
                    crowd.terminate()
                process.terminate()
                process.wait(20)
    told["load_average_after"] = [round(load, 2) for load in os.getloadavg()]
    show(phases)
    if not arguments.quick:
        content = {"conditions": told, "memory_with_viewers_before_results_megabytes": alone, "phases": phases}
        RESULTS.write_text(json.dumps(content, indent=2) + "\n")


def show(phases: dict[str, dict[str, Any]]) -> None:
    table = Table(title="Dashboard: updates to viewers")
    for column in (
        "phase",
        "viewers",
        "p50 ms",
        "p99 ms",
        "max ms",
        "never came",
        "backend cores",
        "backend MB",
        "MB sent",
    ):
        table.add_column(column)
    for name, phase in phases.items():
        latency = phase["latency_ms"]
        table.add_row(
            name,
            str(phase["viewers"]),
            str(latency["p50"]),
            str(latency["p99"]),
            str(latency["max"]),
            str(phase["updates_that_never_came"]),
            str(phase["cores_used"]["dashboard"]),
            str(phase["memory_megabytes"]["dashboard"]),
            str(phase["megabytes_sent"]),
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
