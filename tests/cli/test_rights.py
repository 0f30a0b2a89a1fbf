"""`headrace rights`: what jobs must be allowed, whoever of a query writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.spark.output.delivery import author_name
from headrace.spark.output.ownership import owner_id
from headrace.stream.job import DELIVERIES

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

JOBS = ["vehicle-distribution", "flow-direction"]


def test_one_right_covers_every_id_that_a_query_writes_under(cli: Cli) -> None:
    found = json.loads(cli("rights", *JOBS, "--json").stdout)
    (ids,) = (right for right in found if right["resource"] == "transactional-id" and right["prefixed"])
    assert ids["operation"] == "write"
    assert "a job that catches up" in ids["why"]
    query = "+".join(sorted(JOBS))
    for delivery in DELIVERIES:
        names = [author_name(query, delivery), author_name(query, delivery, 3)]
        names += [author_name(query, delivery, catching_up=job) for job in JOBS]
        assert all(f"headrace.{name}".startswith(ids["name"]) for name in names)
    # To claim the results of a job takes an id that all queries with that job have in common.
    owners = {right["name"] for right in found if right["resource"] == "transactional-id" and not right["prefixed"]}
    assert owners == {owner_id(job) for job in JOBS}
    # No job of it alone, nor another query, writes under these.
    assert not any(f"headrace.{author_name(job, 'exactly_once')}".startswith(ids["name"]) for job in JOBS)


def test_the_order_of_the_jobs_does_not_matter_and_a_job_alone_never_catches_up(cli: Cli) -> None:
    def listed(*words: str) -> list[str]:
        return sorted(cli("rights", *words).stdout.splitlines())

    assert listed(*JOBS) == listed(*reversed(JOBS))
    assert "catches up" in "".join(listed(*JOBS))
    assert "catches up" not in "".join(listed(JOBS[0]))


def test_the_calls_for_a_user(cli: Cli) -> None:
    calls = cli("rights", *JOBS, "--user", "runner").stdout.splitlines()
    assert len(calls) == len(json.loads(cli("rights", *JOBS, "--json").stdout))
    (ids,) = (call for call in calls if "--transactional-id" in call and "prefixed" in call)
    assert ids.endswith(
        "--transactional-id headrace.flow-direction+vehicle-distribution --resource-pattern-type prefixed"
    )
    assert all("--allow-principal User:runner" in call for call in calls)
