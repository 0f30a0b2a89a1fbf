"""REST: the current state of the jobs, for the page and for anybody else."""

from __future__ import annotations

import math
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.middleware.gzip import GZipMiddleware

from headrace.dashboard import answers
from headrace.dashboard.cleaning import plain_text
from headrace.dashboard.sampling import SamplerBusyError
from headrace.errors import BrokerError
from headrace.geo import cell_from_text, cell_latitude, cell_longitude

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from headrace.dashboard.board import Board
    from headrace.dashboard.figures import Figures
    from headrace.dashboard.pages import Pages
    from headrace.dashboard.sampling import Sampler
    from headrace.dashboard.step_figures import StepFigures

VERSION = metadata.version("headrace")
MOST_CELLS = 50_000
_GONE = "Results cannot be read. GET /api/status says why."
_DEGRADED = "Parts of the dashboard do not work or are out of date (GET /api/status says why)"
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": answers.ProblemAnswer} for status in (401, 403, 404, 422)
}


def make_api(
    boards: Mapping[str, Board],
    figures: Figures,
    metrics: CollectorRegistry,
    pages: Pages,
    steps: StepFigures,
    sampler: Sampler,
    *,
    title: str,
    map_config: dict[str, Any],
    features: Callable[[], dict[str, Any]],
) -> FastAPI:
    """Put the REST application together.

    Args:
        boards: By job.
        figures: The pipeline's own state.
        metrics: For Prometheus.
        pages: The files of the page.
        steps: The graphs of the jobs.
        sampler: Reads rows for them.
        title: What the page is called.
        map_config: Where the map begins, and its style.
        features: Gives lines and points to draw on the map.
    """
    api = FastAPI(
        title="Headrace dashboard",
        version=VERSION,
        description="The newest results of every job and the state of the pipeline. Times are milliseconds since 1970.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        responses=_PROBLEMS,
    )
    api.add_middleware(GZipMiddleware, minimum_size=2_000, compresslevel=4)
    api.add_exception_handler(RequestValidationError, _explain)

    def board_of(job: str) -> Board:
        if job not in boards:
            raise HTTPException(404, f"There is no job {plain_text(job)[:80]!r}. Jobs: {', '.join(boards)}.")
        return boards[job]

    def job_answer(job: str) -> dict[str, Any]:
        status = figures.status.get("jobs", {}).get(job)
        waiting = {"state": "waiting", "text": "", "entries": 0, "newest": None, "heard": None}
        return {**boards[job].declaration.to_dict(), "status": status or waiting}

    @api.get("/api/config", response_model=answers.ConfigAnswer, tags=["page"])
    def config() -> Response:
        """What the page needs to know before it starts."""
        return _json({"title": title, "version": VERSION, "map": map_config})

    @api.get("/api/jobs", response_model=answers.JobsAnswer, tags=["jobs"])
    def jobs() -> Response:
        """Every job: what it looks like and how it is doing."""
        return _json({"jobs": [job_answer(job) for job in boards]})

    @api.get("/api/jobs/{job}", response_model=answers.JobAnswer, tags=["jobs"])
    def one_job(job: str) -> Response:
        """One job."""
        board_of(job)
        return _json(job_answer(job))

    @api.get("/api/jobs/{job}/cells", response_model=answers.CellsAnswer, tags=["jobs"])
    def cells(
        job: str,
        bbox: Annotated[
            str | None,
            Query(
                description="west,south,east,north in degrees; west beyond east crosses the date line.",
                examples=["24.8,60.1,25.1,60.3"],
                max_length=200,
            ),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_CELLS, description="Entries, at most.")] = 1_000,
    ) -> Response:
        """The current state of a job, newest first: what the map shows now."""
        board = board_of(job)
        version, entries = board.entries()
        entries = _located(entries)
        if bbox is not None:
            if not board.declaration.places:
                raise HTTPException(422, f"The results of {job} have no place: leave bbox out.")
            entries = _within(entries, _box(bbox))
        total = len(entries)
        entries.reverse()
        return _json(
            {
                "job": job,
                "version": version,
                "total": total,
                "truncated": total > limit,
                "cells": entries[:limit],
            }
        )

    @api.get("/api/jobs/{job}/history", response_model=answers.HistoryAnswer, tags=["jobs"])
    def history(job: str, key: Annotated[str, Query(description="The key of an entry.", max_length=2_000)]) -> Response:
        """What a key was worth in the last hour, oldest first."""
        return _json({"job": job, "key": plain_text(key), "points": board_of(job).history(key)})

    @api.get("/api/pipeline", tags=["pipeline"])
    def pipeline() -> Response:
        """The pipeline's own state (as the event `pipeline`), with an hour of curves."""
        parts = [part.to_dict() for part in figures.parts]
        return _json({**figures.pipeline, "parts": parts, "history": figures.history()})

    @api.get("/api/status", response_model=answers.StatusAnswer, tags=["pipeline"])
    def status() -> Response:
        """Whether results can be read, and how each job is doing."""
        # The parts are looked at now: figures that nobody puts together any more cannot say so themselves.
        return _json({**figures.status, "parts": [part.to_dict() for part in figures.parts]})

    @api.get("/api/network", tags=["page"])
    def network() -> Response:
        """Lines and points as GeoJSON that an installed application wants to see on the map."""
        return _json(features(), headers={"Cache-Control": "max-age=3600"})

    @api.get(
        "/healthz",
        response_model=answers.HealthAnswer,
        responses={503: {"model": answers.HealthAnswer}},
        tags=["operation"],
    )
    def health() -> Response:
        """Whether the dashboard can do its work. Anybody may ask, so it names no address and no cause."""
        broker = figures.status.get("broker", {})
        unwell = figures.unwell
        if broker.get("state") == "gone":
            return _json({"status": "unavailable", "detail": _GONE, "parts": unwell}, status=503)
        if unwell:
            return _json({"status": "degraded", "detail": f"{_DEGRADED}: {', '.join(unwell)}.", "parts": unwell})
        return _json({"status": "ok", "detail": "", "parts": []})

    @api.get("/metrics", tags=["operation"], response_class=Response)
    def prometheus() -> Response:
        """Figures for Prometheus."""
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    add_steps(api, steps, sampler)
    # The last: what no other route takes is a file of the page.
    api.mount("/", pages, name="pages")
    return api


def add_steps(api: FastAPI, steps: StepFigures, sampler: Sampler) -> None:
    """Add the questions about the steps of jobs.

    Args:
        api: The application.
        steps: The graphs, with their figures.
        sampler: Reads rows.
    """

    def known(job: str) -> str:
        if job not in steps.graphs:
            raise HTTPException(404, f"There is no job {plain_text(job)[:80]!r}. Jobs: {', '.join(steps.graphs)}.")
        return job

    @api.get("/api/jobs/{job}/graph", response_model=answers.GraphAnswer, tags=["jobs"])
    def graph(job: str) -> Response:
        """The steps of a job as a graph, with what is known of each: rates, backlog, watermark gap, state."""
        return _json(steps.to_dict(known(job)))

    @api.get(
        "/api/jobs/{job}/sample",
        response_model=answers.SampleAnswer,
        responses={503: {"model": answers.ProblemAnswer}},
        tags=["jobs"],
    )
    def sample(
        job: str, edge: Annotated[str, Query(description="The id of an edge of the graph.", max_length=200)]
    ) -> Response:
        """The newest rows on an edge; where they cannot be shown, why."""
        line = steps.graphs[known(job)].edge(edge)
        if line is None:
            names = ", ".join(each.id for each in steps.graphs[job].edges)
            raise HTTPException(404, f"The graph of {job} has no edge {plain_text(edge)[:80]!r}. Edges: {names}.")
        try:
            return _json(sampler.sample(line))
        except SamplerBusyError as problem:
            raise HTTPException(503, f"{problem.message}. {problem.hint}") from problem
        except BrokerError as problem:
            raise HTTPException(503, f"{_GONE} ({plain_text(problem.message)})") from problem


def _json(content: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(content, status_code=status, headers={"Cache-Control": "no-store", **(headers or {})})


async def _explain(_request: Request, problem: Exception) -> Response:
    """A parameter is wrong: say which and why, in one sentence."""
    errors = problem.errors() if isinstance(problem, RequestValidationError) else []
    texts = [f"{error['loc'][-1]}: {error['msg']}" for error in errors]
    return JSONResponse({"detail": plain_text("; ".join(texts))}, status_code=422)


def _located(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give entries with a cell the position of its middle."""
    rows = [row for row, entry in enumerate(entries) if entry["cell"] is not None]
    if not rows:
        return entries
    places = (
        pl.DataFrame({"cell": [entries[row]["cell"] for row in rows]})
        .with_columns(cell_from_text("cell"))
        .select(north=cell_latitude("cell"), east=cell_longitude("cell"))
    )
    for row, (north, east) in zip(rows, places.iter_rows(), strict=True):
        entries[row]["latitude"], entries[row]["longitude"] = north, east
    return entries


def _box(text: str) -> tuple[float, float, float, float]:
    parts = text.split(",")
    try:
        west, south, east, north = (float(part) for part in parts)
    except ValueError:
        raise HTTPException(422, "bbox: give four numbers, west,south,east,north, in degrees.") from None
    if not all(math.isfinite(side) for side in (west, south, east, north)):
        raise HTTPException(422, "bbox: the numbers must be finite.")
    if not (-90 <= south <= north <= 90 and -180 <= west <= 180 and -180 <= east <= 180):
        raise HTTPException(422, "bbox: west and east are within -180 to 180, south is below north, both within 90.")
    return west, south, east, north


def _within(entries: list[dict[str, Any]], box: tuple[float, float, float, float]) -> list[dict[str, Any]]:
    west, south, east, north = box

    def inside(entry: dict[str, Any]) -> bool:
        latitude, longitude = entry["latitude"], entry["longitude"]
        if latitude is None or longitude is None or not south <= latitude <= north:
            return False
        return bool(west <= longitude <= east if west <= east else longitude >= west or longitude <= east)

    return [entry for entry in entries if inside(entry)]
