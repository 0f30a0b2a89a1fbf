/** The pipeline page: each stage of an event's way with its figures, red where something is wrong, with a sentence that says what. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import * as format from "../format";
import type { Health, Latency, Partition, Pipeline, Query, SeriesName, Stage, Watermark } from "../protocol";
import type { App } from "../state/app";
import { Chart } from "./chart";

const HEALTH: Record<Health, string> = { ok: "fine", warning: "look here", error: "wrong", unknown: "not known" };
const MARK: Record<Health, string> = { ok: "✓", warning: "!", error: "✕", unknown: "?" };
const PER_SECOND = new Set(["events", "results", "late", "dead_letters", "updates"]);

export function PipelinePage({ app }: { app: App }) {
  const pipeline = app.work.value;
  return (
    <main class="pipeline" id="pipeline">
      <h1>Pipeline</h1>
      {pipeline === null ? (
        <p class="hint">Waiting for the first figures …</p>
      ) : (
        <>
          <Problems pipeline={pipeline} />
          <Stages stages={pipeline.stages} now={pipeline.now} />
          <Curves app={app} />
          <Queries queries={pipeline.queries} now={pipeline.now} />
          <div class="halves">
            <Watermarks marks={pipeline.watermarks} now={pipeline.now} />
            <Latencies latencies={pipeline.latency} />
          </div>
          <Backlog partitions={pipeline.partitions} />
        </>
      )}
    </main>
  );
}

function Problems({ pipeline }: { pipeline: Pipeline }) {
  const { problems } = pipeline;
  if (problems.length === 0) {
    return (
      <p class="notice" data-severity="ok" role="status">
        <span class="notice-mark" aria-hidden="true">✓</span>
        <span>Nothing is wrong.</span>
      </p>
    );
  }
  return (
    <ul class="problems" aria-label="What is wrong">
      {problems.map((problem, at) => (
        <li key={at} class="notice" data-severity={problem.severity}>
          <span class="notice-mark" aria-hidden="true">{MARK[problem.severity]}</span>
          <span>
            {problem.stage !== "" && <b>{titleOf(pipeline, problem.stage)}: </b>}
            {problem.text}
          </span>
        </li>
      ))}
    </ul>
  );
}

const titleOf = (pipeline: Pipeline, stage: string): string => pipeline.stages.find((each) => each.name === stage)?.title ?? stage;

function Stages({ stages, now }: { stages: readonly Stage[]; now: number }) {
  return (
    <ol class="stages" aria-label="Stages">
      {stages.map((stage) => (
        <li key={stage.name} class="stage" data-state={stage.state} data-stage={stage.name} data-stale={stage.stale}>
          <header>
            <h2>{stage.title}</h2>
            <span class="health" data-state={stage.state}>
              <span aria-hidden="true">{MARK[stage.state]}</span> {HEALTH[stage.state]}
            </span>
          </header>
          <dl>
            {[...stage.rates].map(([name, value]) => (
              <div key={name}>
                <dt>{format.words(name)}{PER_SECOND.has(name) ? "/s" : ""}</dt>
                <dd>{format.number(value)}</dd>
              </div>
            ))}
          </dl>
          {stage.stale && (
            <p class="as-of">{stage.refreshed === null ? "Never refreshed" : `Not current: as of ${format.time(stage.refreshed, now)}`}</p>
          )}
          {stage.text !== "" && <p>{stage.text}</p>}
        </li>
      ))}
    </ol>
  );
}

const CHARTS: readonly { title: string; unit: string; series: readonly (readonly [SeriesName, string])[] }[] = [
  { title: "Events and results", unit: "per second", series: [["events", "events"], ["results", "results"]] },
  { title: "Late events and dead letters", unit: "per second", series: [["late", "late events"], ["dead_letters", "dead letters"]] },
  { title: "Backlog in Kafka", unit: "records", series: [["backlog", "backlog"]] },
  { title: "Duration of a micro-batch", unit: "ms", series: [["batch_ms", "batch"]] },
];

function Curves({ app }: { app: App }) {
  const points = app.curves.points.value;
  const at = useMemo(() => points.map((point) => point.at ?? 0), [points]);
  return (
    <section class="curves" aria-label="The last hour">
      {CHARTS.map(({ title, unit, series }) => (
        <figure key={title} class="panel">
          <figcaption><h2>{title}</h2><span>{unit}</span></figcaption>
          {points.length === 0 ? (
            <p class="hint">No figures yet.</p>
          ) : (
            <Chart
              at={at}
              height={150}
              label={title}
              curves={series.map(([name, label]) => ({ label, unit: "", values: points.map((point) => point[name]) }))}
            />
          )}
        </figure>
      ))}
    </section>
  );
}

function Table(props: { title: string; heads: readonly (readonly [string, boolean])[]; empty: string; rows: number; children: ComponentChildren }) {
  return (
    <section class="panel">
      <h2>{props.title}</h2>
      {props.rows === 0 ? (
        <p class="hint">{props.empty}</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label={props.title}>
          <table>
            <thead>
              <tr>
                {props.heads.map(([head, isNumber]) => (
                  <th key={head} scope="col" data-type={isNumber ? "number" : "text"}>{head}</th>
                ))}
              </tr>
            </thead>
            <tbody>{props.children}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}

const Figure = ({ children, bad = false }: { children: ComponentChildren; bad?: boolean }) => (
  <td data-type="number" data-bad={bad}>{children}</td>
);

function Queries({ queries, now }: { queries: readonly Query[]; now: number }) {
  const heads = [
    ["query", false], ["state", false], ["batch", true], ["last batch", true], ["p50", true], ["p99", true], ["state rows", true],
    ["state size", true], ["restarts", true], ["up since", true], ["heard", true],
  ] as const;
  return (
    <Table title="Queries on Spark" heads={heads} rows={queries.length} empty="No query has been heard of yet.">
      {queries.map((query) => (
        <>
          <tr key={query.query} data-query={query.query}>
            <th scope="row">
              {query.query}
              {query.jobs.length > 1 && <JobNames query={query} />}
            </th>
            <td data-bad={query.state !== "running" && query.state !== "starting"}>{query.state}</td>
            <Figure>{format.number(query.batch)}</Figure>
            <Figure>{format.duration(query.batchMs)}</Figure>
            <Figure>{format.duration(query.batchMsP50)}</Figure>
            <Figure>{format.duration(query.batchMsP99)}</Figure>
            <Figure>{format.number(query.stateRows)}</Figure>
            <Figure>{format.bytes(query.stateBytes)}</Figure>
            <Figure bad={(query.restarts ?? 0) > 0}>{format.number(query.restarts)}</Figure>
            <Figure>{format.time(query.started, now)}</Figure>
            <Figure bad={query.stale}>{format.age(query.heard, now)}</Figure>
          </tr>
          {[...query.failed].map(([job, why]) => (
            <tr key={`${query.query}/failed/${job}`} class="said" data-failed={job}>
              <td colSpan={heads.length} data-bad={true}>{MARK.error} {job} has failed and is left out. {why}</td>
            </tr>
          ))}
          {query.text !== "" && (
            <tr key={`${query.query}/text`} class="said"><td colSpan={heads.length}>{query.text}</td></tr>
          )}
        </>
      ))}
    </Table>
  );
}

/** The jobs of a query; those that failed and are left out are marked. */
function JobNames({ query }: { query: Query }) {
  return (
    <small>
      {query.jobs.map((job, at) => (
        <>
          {at > 0 && ", "}
          {query.failed.has(job) ? <s title="failed, left out">{job}</s> : job}
        </>
      ))}
    </small>
  );
}

const WORRYING_LAG = 60_000;

function Watermarks({ marks, now }: { marks: readonly Watermark[]; now: number }) {
  const most = Math.max(1000, ...marks.map((mark) => Math.min(mark.lag ?? 0, WORRYING_LAG)));
  return (
    <Table
      title="Watermarks against the wall clock"
      heads={[["job", false], ["watermark", true], ["behind", true], ["how far", false]]}
      rows={marks.length}
      empty="No watermark has been heard of yet."
    >
      {marks.map((mark) => (
        <tr key={mark.job}>
          <th scope="row">{mark.job}</th>
          <Figure>{format.time(mark.watermark, now)}</Figure>
          <Figure>{format.duration(mark.lag)}</Figure>
          <td class="bar-cell"><Bar share={(mark.lag ?? 0) / most} /></td>
        </tr>
      ))}
    </Table>
  );
}

function Latencies({ latencies }: { latencies: readonly Latency[] }) {
  return (
    <Table
      title="Latency by stage"
      heads={[["job", false], ["stage", false], ["p50", true], ["p99", true], ["results", true]]}
      rows={latencies.length}
      empty="Nothing has been measured yet."
    >
      {latencies.map((each) => (
        <tr key={`${each.job}/${each.stage}`}>
          <th scope="row">{each.job}</th>
          <td>{each.stage}</td>
          <Figure>{format.duration(each.p50)}</Figure>
          <Figure>{format.duration(each.p99)}</Figure>
          <Figure>{format.number(each.count)}</Figure>
        </tr>
      ))}
    </Table>
  );
}

function Backlog({ partitions }: { partitions: readonly Partition[] }) {
  const most = Math.max(1, ...partitions.map((each) => each.backlog ?? 0));
  return (
    <Table
      title="Backlog per partition"
      heads={[["topic", false], ["job", false], ["partition", true], ["end", true], ["read", true], ["backlog", true], ["share of the greatest", false]]}
      rows={partitions.length}
      empty="No partition has been read yet."
    >
      {partitions.map((each) => (
        <tr key={`${each.job}/${each.topic}/${each.partition}`}>
          <th scope="row">{each.topic}</th>
          <td>{each.job}</td>
          <Figure>{each.partition}</Figure>
          <Figure>{format.number(each.end)}</Figure>
          <Figure>{format.number(each.committed)}</Figure>
          <Figure>{format.number(each.backlog)}</Figure>
          <td class="bar-cell"><Bar share={(each.backlog ?? 0) / most} /></td>
        </tr>
      ))}
    </Table>
  );
}

function Bar({ share }: { share: number }) {
  const width = Math.max(0, Math.min(1, share)) * 100;
  return <span class="bar" aria-hidden="true"><span style={{ width: `${width.toFixed(1)}%` }} /></span>;
}
