"""`headrace replay-job`: a job run again over a closed range of its topics, into a topic of its own."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.jobs import complete_job, pick
from headrace.cli.moments import moment
from headrace.cli.options import Bootstrap, Globals, Json, UsageError
from headrace.cli.progress import Steps
from headrace.cli.stopping import stop_on_signals

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.kafka import Connection
    from headrace.spark.run.replay import Replayed
    from headrace.stream import Job

_OFFSETS = re.compile(r"(?:(?P<topic>[^/=,]+)/)?(?P<partition>\d+)=(?P<offset>\d+)")
Offsets = dict[str, dict[int, int]]


def replay_job(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="JOB", autocompletion=complete_job, show_default=False, help="The job.")
    ],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME|OFFSETS",
            help="Where to begin: when events arrived, or offsets (0=120,1=118 or TOPIC/0=120).",
        ),
    ] = "start",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME|OFFSETS", help="Where to end; what stands there is not read.")
    ] = "now",
    into: Annotated[str, typer.Option("--into", metavar="TOPIC", help="Where results go.", show_default=False)] = "",
    keep_open: Annotated[
        bool, typer.Option("--keep-open", help="Leave windows that are open at the end without a result.")
    ] = False,
    append: Annotated[bool, typer.Option("--append", help="Write to a topic that has records already.")] = False,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Run a job again over a closed range of time or offsets, and write the results to another topic."""
    if not into:
        raise UsageError("--into TOPIC is missing", hint="Results of a replay go to a topic of their own.")
    from headrace.kafka import Topics
    from headrace.spark.run.replay import refuse_topics

    settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))
    job = pick([name], settings)[0]
    connection = connect(settings)
    ends = _places(connection, job, end, option="--to")
    begins = _places(connection, job, start, option="--from")
    for topic, each in begins.items():
        behind = [n for n, offset in each.items() if offset > ends[topic][n]]
        if behind:
            raise UsageError(f"--from is after --to in {topic} partition {behind[0]}", hint="Give an earlier --from.")
    # Before Spark is started, which takes seconds.
    refuse_topics(Topics(connection), job, into, append=append)
    told = _replayed(settings, connection, job, (begins, ends), into, keep_open=keep_open, append=append)
    if json:
        from dataclasses import asdict

        terminal.document({"job": job.name, "from": begins, "to": ends, **asdict(told)})
        return
    terminal.line(f"{told.events:,} events, {told.results:,} results in {', '.join(told.topics)}.")
    terminal.line(
        f"Not written: {told.late:,} late, {told.dismissed:,} dismissed, {told.dead_letters:,} that could not be read."
    )
    terminal.note(f"Look at them: headrace tail {into}")


def _replayed(
    settings: Settings,
    connection: Connection,
    job: Job,
    bounds: tuple[Offsets, Offsets],
    into: str,
    *,
    keep_open: bool,
    append: bool,
) -> Replayed:
    from headrace.cli.run import quiet_spark, run_in_thread
    from headrace.dev import find_java
    from headrace.spark.run.replay import replay_job as replay
    from headrace.spark.session.session import spark_settings, start_session

    find_java()
    ours = spark_settings(
        state_partitions=settings.spark.state_partitions,
        driver_memory=settings.spark.driver_memory,
        local_directory=settings.checkpoint_directory / "replay-local",
    )
    found: list[Replayed] = []
    with (
        stop_on_signals() as stop,
        quiet_spark(settings.log_directory / "replay.log"),
        Steps() as steps,
        steps.step(f"Replaying {job.name}") as step,
    ):

        def tell(what: str, done: int, total: int) -> None:
            step.progress(f"{done:,} of {total:,} {what}", done=done, total=total)

        def work() -> None:
            spark = start_session("headrace replay", master=settings.spark.master, settings=ours)
            try:
                told = replay(
                    spark,
                    job,
                    connection,
                    start=bounds[0],
                    end=bounds[1],
                    into=into,
                    key_groups=settings.spark.key_groups,
                    encoding=settings.spark.result_encoding,
                    to_the_end=not keep_open,
                    append=append,
                    progress=tell,
                )
            finally:
                spark.stop()
            found.append(told)

        run_in_thread(work, stop)
        step.done(f"{found[0].events:,} events")
    stop.finish()
    return found[0]


def _places(connection: Connection, job: Job, text: str, *, option: str) -> Offsets:
    """Understand a time or offsets."""
    from headrace.kafka.ranges import LogEnds
    from headrace.time.instants import instant

    log = LogEnds(connection)
    places = log.partitions(list(dict.fromkeys(job.sources)))
    if "=" not in text:
        if text.strip().lower() == "now":
            found = log.ends(places)
        else:
            at = instant(moment(text, now=datetime.now(UTC), option=option))
            begins = log.begins(places)
            found = begins if at <= 0 else {place: max(begins[place], at_) for place, at_ in log.at(places, at).items()}
    else:
        given = _offsets(job, text, option=option)
        begins, ends = log.begins(places), log.ends(places)
        edge = begins if option == "--from" else ends
        found = {place: given.get(place, edge[place]) for place in places}
        wrong = [place for place, offset in given.items() if not begins.get(place, 0) <= offset <= ends.get(place, -1)]
        if wrong:
            topic, number = wrong[0]
            raise UsageError(f"{option}: Kafka does not hold this offset of {topic} partition {number}")
    by_topic: Offsets = {}
    for (topic, number), offset in found.items():
        by_topic.setdefault(topic, {})[number] = offset
    return by_topic


def _offsets(job: Job, text: str, *, option: str) -> dict[tuple[str, int], int]:
    found = {}
    for part in text.split(","):
        match = _OFFSETS.fullmatch(part.strip())
        topic = None if match is None else match["topic"] or (job.sources[0] if len({*job.sources}) == 1 else None)
        if match is None or topic is None:
            raise UsageError(
                f"{option} {part.strip()!r} is no offset",
                hint="Write PARTITION=OFFSET, or TOPIC/PARTITION=OFFSET for a job with several topics.",
            )
        found[topic, int(match["partition"])] = int(match["offset"])
    return found
