"""The application's jobs on topics of a test's own, so that tests do not see each other's events."""

from __future__ import annotations

from dataclasses import replace

from headrace.stream import Job, Stream, plan


def relocated(job: Job, place: str) -> Job:
    """Give a job that reads and writes topics under another name."""
    moved: dict[int, plan.Node] = {}

    def move(node: plan.Node) -> plan.Node:
        # What outputs of a job share must stay one thing.
        if id(node) not in moved:
            if isinstance(node, plan.Read):
                assert isinstance(node.source, plan.TopicSource)
                moved[id(node)] = replace(node, source=replace(node.source, topic=f"{node.source.topic}.{place}"))
            elif isinstance(node, plan.Union | plan.Combined):
                moved[id(node)] = replace(node, parts=tuple(map(move, node.parts)))
            else:
                moved[id(node)] = replace(node, input=move(node.input))
        return moved[id(node)]

    def stream(old: Stream) -> Stream:
        return replace(old, node=move(old.node))

    outputs = {name: replace(output, stream=stream(output.stream)) for name, output in job.outputs.items()}
    return replace(job, stream=stream(job.stream), result_topic=f"analytics.{place}.{job.name}", outputs=outputs)
