"""A stand-in for the backend, for work on the page alone: invented results, the real protocol.

    .venv/bin/python frontend/dev/mock.py --port 8099 --cells 400

It serves the built page (or `npm run dev` with HEADRACE_DASHBOARD=http://127.0.0.1:8099) under the same strict
Content-Security-Policy. No test of the product uses it: those run the real backend. `frames.py` measures with it how
many frames a browser draws while thousands of cells change.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import random
import time
from pathlib import Path
from typing import Any

import h3
import socketio
import uvicorn
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

STATIC = Path(__file__).resolve().parents[2] / "src" / "headrace" / "dashboard" / "static"
CENTRE = (60.19, 24.94)
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "worker-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'

Json = dict[str, Any]


def now() -> int:
    return int(time.time() * 1000)


def declaration(job: str, title: str, kind: str, values: list[tuple[str, str]], **more: Any) -> Json:
    return {
        "job": job,
        "title": title,
        "description": f"{title}, invented",
        "topic": f"analytics.{job}",
        "windows": "sliding(30s every 5s)",
        "step": 5000,
        "kind": kind,
        "keys": ["cell"],
        "cell": "cell" if kind in ("cells", "arcs", "edges") else None,
        "target": "target" if kind in ("arcs", "edges") else None,
        "latitude": "latitude" if kind == "points" else None,
        "longitude": "longitude" if kind == "points" else None,
        "values": [{"column": column, "label": column, "unit": unit} for column, unit in values],
        "labels": [],
        "columns": [{"name": column, "type": "number"} for column, _ in values],
        "scale": "sequential",
        "domain": None,
        "legend": "",
        "time_to_live": 5000,
        "each": kind == "points",
        **more,
    }


EVENT_COLUMNS = [
    {"name": "vehicle_id", "type": "text"},
    {"name": "line", "type": "text"},
    {"name": "stopped", "type": "time"},
    {"name": "speed", "type": "number"},
]
DECLARATIONS = [
    declaration("vehicle-distribution", "Vehicle distribution", "cells", [("vehicles", "vehicles")]),
    declaration(
        "delay-distribution",
        "Delay distribution",
        "cells",
        [("p50", "s"), ("p90", "s"), ("p99", "s")],
        scale="diverging",
    ),
    declaration("final-stop-distribution", "Final stops", "arcs", [("vehicles", "vehicles")]),
    declaration("flow-direction", "Flow direction", "edges", [("trips", "trips")]),
    declaration(
        "emergency-stop-pattern",
        "Emergency stops",
        "points",
        [],
        columns=EVENT_COLUMNS,
        labels=["line", "vehicle_id", "speed"],
        time_to_live=120_000,
    ),
    declaration(
        "lines",
        "Lines under way",
        "table",
        [],
        keys=["line"],
        labels=["line", "vehicles", "delay"],
        columns=[
            {"name": "line", "type": "text"},
            {"name": "vehicles", "type": "number"},
            {"name": "delay", "type": "number"},
        ],
    ),
    declaration(
        "speed",
        "Mean speed by mode",
        "chart",
        [("speed", "m/s")],
        keys=["mode"],
        labels=["mode"],
        columns=[{"name": "mode", "type": "text"}, {"name": "speed", "type": "number"}],
    ),
]


class World:
    """Invented results of all jobs, made anew every five seconds."""

    def __init__(self, cells: int, hostile: bool) -> None:
        self.random = random.Random(7)
        middle = h3.latlng_to_cell(*CENTRE, 9)
        rings = math.ceil(math.sqrt(cells / 3)) + 1
        near = sorted(h3.grid_disk(middle, rings), key=lambda cell: h3.grid_distance(middle, cell))
        wide = near if cells > 2000 else [cell for cell in near if self.random.random() < 0.9]
        self.cells = wide[:cells]
        self.hostile = hostile
        self.events: list[Json] = []
        self.history: dict[tuple[str, str], list[Json]] = {}

    def rows(self, job: str, at: int) -> Json:
        """One group of a job's newest results: columns by name."""
        draw = self.random
        cells = self.cells
        phase = at / 40_000
        if job == "vehicle-distribution":
            wave = [
                1 + max(0, int(6 * math.exp(-index / (len(cells) / 4)) * (1 + math.sin(phase + index / 9))))
                for index in range(len(cells))
            ]
            return {"key": cells, "values": {"vehicles": wave}}
        if job == "delay-distribution":
            some = cells[:: 2 if len(cells) < 2000 else 1]
            p50 = [round(60 * math.sin(phase + index / 13) + draw.gauss(20, 25)) for index in range(len(some))]
            return {"key": some, "values": {"p50": p50, "p90": [v + 60 for v in p50], "p99": [v + 150 for v in p50]}}
        if job == "final-stop-distribution":
            ends = cells[:: max(1, len(cells) // 12)][:12]
            starts = cells[:: max(1, len(cells) // 120)][:120]
            pairs = [(start, ends[index % len(ends)]) for index, start in enumerate(starts)]
            return {
                "key": [f"{start}>{end}" for start, end in pairs],
                "cell": [start for start, _ in pairs],
                "target": [end for _, end in pairs],
                "values": {"vehicles": [draw.randint(1, 14) for _ in pairs]},
            }
        if job == "flow-direction":
            some = cells[::2][:1500]
            target = [sorted(set(h3.grid_ring(cell, 1)))[(index + int(phase)) % 6] for index, cell in enumerate(some)]
            return {
                "key": some,
                "cell": some,
                "target": target,
                "values": {"trips": [draw.randint(1, 40) for _ in some]},
            }
        if job == "lines":
            names = ["1", "2", "4", "6", "7", "9", "550", "M1", "K", HOSTILE if self.hostile else "510"]
            return {
                "key": names,
                "values": {
                    "line": names,
                    "vehicles": [draw.randint(1, 30) for _ in names],
                    "delay": [draw.randint(-60, 240) for _ in names],
                },
            }
        modes = ["tram", "bus", "metro"]
        return {
            "key": modes,
            "values": {"mode": modes, "speed": [round(5 + 3 * index + draw.gauss(0, 0.6), 2) for index in range(3)]},
        }

    def group(self, job: str, at: int) -> Json:
        end = at // 5000 * 5000
        times = {
            "window_start": end - 30_000,
            "window_end": end,
            "event_time": end - 1,
            "expires_at": end + 5000,
            "published": at,
        }
        made = {**times, **self.rows(job, at)}
        for row, key in enumerate(made["key"][:300]):
            points = self.history.setdefault((job, key), [])
            values = {name: column[row] for name, column in made["values"].items()}
            points.append({"event_time": end - 1, "window_end": end, "values": values})
            del points[:-720]
        return made

    def event(self, at: int) -> Json:
        """One emergency stop, as a group of its own."""
        cell = self.random.choice(self.cells[:300])
        latitude, longitude = h3.cell_to_latlng(cell)
        vehicle = HOSTILE if self.hostile else f"{self.random.choice([12, 22, 40])}/{self.random.randint(100, 999)}"
        return {
            "window_start": None,
            "window_end": None,
            "event_time": at - 1200,
            "expires_at": at + 120_000,
            "published": at,
            "key": [f"{vehicle}@{at}"],
            "latitude": [latitude],
            "longitude": [longitude],
            "values": {
                "vehicle_id": [vehicle],
                "line": [self.random.choice(["4", "6", "550", "M1"])],
                "stopped": [at - 1200],
                "speed": [round(self.random.uniform(10, 18), 1)],
            },
        }


class Server:
    """Snapshots, differences and figures for every viewer."""

    def __init__(self, world: World, broken: str) -> None:
        self.world = world
        self.broken = broken
        self.io = socketio.AsyncServer(async_mode="asgi", cors_allowed_origins=[])
        self.version = now()
        self.current: dict[str, list[Json]] = {}
        self.curves: list[Json] = []
        self.io.on("connect", self.connect)
        self.io.on("subscribe", self.subscribe)
        self.io.on("received", lambda _sid, _message: None)

    async def connect(self, sid: str, _environ: Json, _auth: object = None) -> None:
        await self.io.emit("hello", {"server": "headrace", "version": "mock", "now": now(), "started": now()}, to=sid)
        await self.io.emit("declarations", DECLARATIONS, to=sid)
        await self.io.emit("status", self.status(), to=sid)
        await self.io.emit("pipeline", self.pipeline(), to=sid)

    async def subscribe(self, sid: str, message: Json) -> Json:
        for each in DECLARATIONS:
            job = each["job"]
            if job in message["jobs"]:
                await self.io.enter_room(sid, job)
                snapshot = {"job": job, "version": self.version, "groups": self.current.get(job, [])}
                await self.io.emit("snapshot", snapshot, to=sid)
            else:
                await self.io.leave_room(sid, job)
        return {"ok": True, "jobs": message["jobs"]}

    def status(self) -> Json:
        texts = {
            "stopped": "The job vehicle-distribution has stopped. Start it again: headrace run vehicle-distribution.",
            "waiting": "",
        }
        state = self.broken if self.broken in texts else "live"
        broker = (
            {
                "state": "gone",
                "since": now(),
                "text": "Kafka at 127.0.0.1:9092 does not answer. Start it: headrace broker start.",
            }
            if self.broken == "broker"
            else {"state": "connected", "since": now(), "text": ""}
        )
        jobs = {
            each["job"]: {
                "state": state if index == 0 or state == "waiting" else "live",
                "text": texts.get(state, "") if index == 0 else "",
                "entries": sum(len(group["key"]) for group in self.current.get(each["job"], [])),
                "newest": now(),
                "heard": now(),
            }
            for index, each in enumerate(DECLARATIONS)
        }
        return {"broker": broker, "jobs": jobs}

    def point(self, at: int) -> Json:
        load = 310 + 40 * math.sin(at / 60_000) + random.uniform(-8, 8)
        return {
            "at": at,
            "events": load,
            "results": load / 3,
            "late": max(0.0, random.gauss(0, 1)),
            "dead_letters": max(0.0, random.gauss(-1, 1)),
            "backlog": random.randint(60, 220),
            "batch_ms": random.randint(380, 520),
        }

    def pipeline(self) -> Json:
        at = now()
        point = self.point(at)
        wrong = self.broken in ("stopped", "broker")
        text = "The job fell silent 32 s ago. Look at its log, or start it: headrace run vehicle-distribution."
        stage = lambda name, title, state="ok", said="", **rates: {  # noqa: E731
            "name": name,
            "title": title,
            "state": state,
            "text": said,
            "rates": rates,
        }
        return {
            "now": at,
            "problems": [{"severity": "error", "stage": "spark", "text": text}] if wrong else [],
            "stages": [
                stage("ingest", "Ingestion", events=point["events"], dead_letters=point["dead_letters"]),
                stage("kafka", "Kafka", backlog=point["backlog"]),
                stage(
                    "spark",
                    "Spark",
                    "error" if wrong else "ok",
                    text if wrong else "",
                    events=point["events"],
                    results=point["results"],
                    late=point["late"],
                    dead_letters=0.0,
                ),
                stage("results", "Results", results=point["results"]),
                stage("dashboard", "Dashboard", updates=4.1),
            ],
            "queries": [
                {
                    "query": "transit",
                    "jobs": [each["job"] for each in DECLARATIONS[:5]],
                    "state": "failed" if wrong else "running",
                    "text": "",
                    "batch": at // 500 % 10_000,
                    "batch_ms": point["batch_ms"],
                    "batch_ms_p50": 420,
                    "batch_ms_p99": 655,
                    "restarts": 1 if wrong else 0,
                    "started": at - 3_600_000,
                    "state_rows": 1204,
                    "state_bytes": 903_000,
                    "heard": at - 400,
                }
            ],
            "watermarks": [
                {"job": each["job"], "watermark": at - 1100 - 300 * index, "lag": 1100 + 300 * index}
                for index, each in enumerate(DECLARATIONS[:5])
            ],
            "partitions": [
                {
                    "job": "vehicle-distribution",
                    "topic": "input.vehicle-position",
                    "partition": number,
                    "end": 90_211 + number,
                    "committed": 90_100,
                    "backlog": 111 + number * 13,
                }
                for number in range(4)
            ],
            "latency": [
                {
                    "job": each["job"],
                    "stage": stage_name,
                    "p50": 400 + 700 * index,
                    "p99": 700 + 1100 * index,
                    "count": 5000,
                }
                for each in DECLARATIONS[:2]
                for index, stage_name in enumerate(["event to Kafka", "window end to result"])
            ],
            "series": point,
        }

    async def live(self) -> None:
        """New results every five seconds, figures every second, an emergency stop now and then."""
        for back in range(120):
            self.curves.append(self.point(now() - (120 - back) * 5000))
        for back in range(60, 0, -1):
            for each in DECLARATIONS:
                if each["kind"] != "points":
                    self.world.group(each["job"], now() - back * 5000)
        self.current["emergency-stop-pattern"] = [self.world.event(now() - 9000 * back) for back in range(5, 0, -1)]
        turn = 0
        while True:
            if turn % 5 == 0 and self.broken != "waiting":
                await self.update()
            await self.io.emit("status", self.status())
            await self.io.emit("pipeline", self.pipeline())
            turn += 1
            await asyncio.sleep(1)

    async def update(self) -> None:
        at, base = now(), self.version
        self.version = max(self.version + 1, at)
        self.curves.append(self.point(at))
        del self.curves[:-720]
        for each in DECLARATIONS:
            job = each["job"]
            before = {key for group in self.current.get(job, []) for key in group["key"]}
            if each["kind"] == "points":
                groups = [self.world.event(at)] if self.world.random.random() < 0.5 else []
                self.current[job] = [*self.current.get(job, []), *groups][-20:]
                removed = before - {key for group in self.current[job] for key in group["key"]}
            else:
                groups = [self.world.group(job, at)]
                self.current[job] = groups
                removed = before - set(groups[0]["key"])
            changes = {"job": job, "base": base, "version": self.version, "groups": groups, "removed": sorted(removed)}
            await self.io.emit("changes", changes, room=job)


def network(world: World) -> Json:
    """Some straight lines with stops: enough to see how they are drawn."""
    features: list[Json] = []
    modes = ["tram", "bus", "metro", "train", "bus", "bus", "tram"]
    for number in range(14):
        angle = number * math.pi / 7
        path = [
            [
                CENTRE[1] + step * 0.02 * math.cos(angle) - 0.01 * math.sin(step),
                CENTRE[0] + step * 0.01 * math.sin(angle),
            ]
            for step in range(10)
        ]
        properties = {"kind": "line", "name": str(number), "mode": modes[number % 7]}
        features.append(
            {"type": "Feature", "properties": properties, "geometry": {"type": "LineString", "coordinates": path}}
        )
        for step, place in enumerate(path[1:]):
            name = HOSTILE if world.hostile and step == 0 else f"Stop {number}.{step}"
            features.append(
                {
                    "type": "Feature",
                    "properties": {"kind": "stop", "name": name},
                    "geometry": {"type": "Point", "coordinates": place},
                }
            )
    return {"type": "FeatureCollection", "features": features}


def application(server: Server) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI):  # type: ignore[no-untyped-def]
        task = asyncio.create_task(server.live())
        yield
        task.cancel()

    api = FastAPI(lifespan=lifespan)

    @api.middleware("http")
    async def strict(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["content-security-policy"] = CSP
        return response

    @api.get("/api/config")
    def config() -> Json:
        return {
            "title": "Headrace",
            "version": "mock",
            "map": {"style": None, "center": [CENTRE[1], CENTRE[0]], "zoom": 11.5},
        }

    @api.get("/api/network")
    def lines() -> Json:
        return network(server.world)

    @api.get("/api/pipeline")
    def pipeline() -> Json:
        names = ["at", "events", "results", "late", "dead_letters", "backlog", "batch_ms"]
        return {**server.pipeline(), "history": {name: [point[name] for point in server.curves] for name in names}}

    @api.get("/api/jobs/{job}/history")
    def history(job: str, key: str) -> Json:
        return {"job": job, "key": key, "points": server.world.history.get((job, key), [])}

    api.mount("/", StaticFiles(directory=STATIC, html=True))
    return socketio.ASGIApp(server.io, api)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--cells", type=int, default=400)
    parser.add_argument("--hostile", action="store_true", help="markup in names and vehicle ids")
    parser.add_argument("--broken", default="", choices=["", "broker", "stopped", "waiting"])
    arguments = parser.parse_args()
    world = World(arguments.cells, arguments.hostile)
    uvicorn.run(
        application(Server(world, arguments.broken)), host="127.0.0.1", port=arguments.port, log_level="warning"
    )


if __name__ == "__main__":
    main()
