/** The board: every job's results as cards that keep themselves up to date; what needs no map. */
import * as format from "../format";
import { cardViews, type Declaration, isOnMap, type Kind } from "../protocol";
import type { App } from "../state/app";
import { StateBadge } from "./badge";
import { SelectionCard } from "./dock";
import { Notices } from "./notices";
import { ViewCard } from "./views/view";
import { Vitals } from "./vitals";

export function BoardPage({ app }: { app: App }) {
  const declared = app.declared.value;
  return (
    <main class="board" id="content" tabIndex={-1} data-stale={app.link_.value.state !== "connected"}>
      <h1 class="unseen">Board</h1>
      <Notices app={app} />
      {declared === null ? (
        <p class="hint empty">Asking the server what there is to see …</p>
      ) : declared.length === 0 ? (
        <p class="hint empty">The server knows no job. <code>headrace new</code> writes a project with one, <code>headrace dev</code> runs it.</p>
      ) : (
        <>
          <Vitals app={app} />
          {inOrder(declared).map((declaration) => <JobSection key={declaration.job} app={app} declaration={declaration} />)}
        </>
      )}
      {app.selection.value !== null && <aside class="drawer" aria-label="Details"><SelectionCard app={app} view={null} /></aside>}
    </main>
  );
}

const ORDER: readonly Kind[] = ["number", "bars", "series", "chart", "table"];

/** What is read at a glance comes first, what is only on the map last. */
export function inOrder(declared: readonly Declaration[]): Declaration[] {
  const rank = (each: Declaration): number => {
    const kind = cardViews(each)[0]?.kind;
    return kind === undefined ? ORDER.length : ORDER.indexOf(kind);
  };
  return [...declared].sort((one, two) => rank(one) - rank(two));
}

function JobSection({ app, declaration }: { app: App; declaration: Declaration }) {
  const { job, run, title, description } = declaration;
  return (
    <section class="job" data-job={job} aria-label={title}>
      <header>
        <h2>{title}</h2>
        <StateBadge status={app.state.value?.jobs.get(job)} />
        {description !== "" && <p>{description}</p>}
        <button type="button" class="text-button" onClick={() => { app.open("job", run); }}>Steps<span class="unseen"> of {title}</span></button>
      </header>
      <JobViews app={app} declaration={declaration} />
    </section>
  );
}

/** The cards of a job; of one that is only on the map, the way there. */
export function JobViews({ app, declaration }: { app: App; declaration: Declaration }) {
  const views = cardViews(declaration);
  const results = app.resultsOf(declaration.job);
  return (
    <div class="cards">
      {views.map((view, at) => (
        <ViewCard key={at} app={app} declaration={declaration} view={view} results={results} alone={false} />
      ))}
      {isOnMap(declaration) && <OnMap app={app} declaration={declaration} />}
    </div>
  );
}

function OnMap({ app, declaration }: { app: App; declaration: Declaration }) {
  const status = app.state.value?.jobs.get(declaration.job);
  return (
    <button
      type="button"
      class="card on-map"
      onClick={() => {
        app.choose(declaration.job, { on: true });
        app.open("map");
      }}
    >
      <span>{status === undefined ? "" : `${format.number(status.entries)} places`}</span>
      <b>Show on the map</b>
    </button>
  );
}
