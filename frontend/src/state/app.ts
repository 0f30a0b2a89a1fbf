/**
 * The state of the page, as signals: whoever reads one is told when it changes. Views are functions of this state and change it by
 * its methods only.
 */
import { batch, computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";

import { SEQUENTIAL, type ScaleName } from "../colour";
import type { Changes, Config, Declaration, Hello, Pipeline, Shown, Snapshot, Status } from "../protocol";
import { cardViews, isOnMap, isPlaced } from "../protocol";
import type { Page, Permalink, Selection } from "../permalink";
import { NOWHERE_KNOWN, type Places } from "../map/places";
import { ServerClock } from "./clock";
import type { LinkState, Listener } from "./connection";
import { Curves } from "./curves";
import { type Entry, Results } from "./results";

/** What the viewer chose for a layer. */
export interface Choice {
  readonly on: boolean;
  /** The value column; null: the first of the declaration. */
  readonly value: string | null;
  /** Cells stand up by their value. */
  readonly high: boolean;
}

const OFF: Choice = { on: false, value: null, high: false };

/** A layer that is on: what the job declared, what the viewer chose, and the results. */
export interface Layer {
  readonly declaration: Declaration;
  readonly choice: Choice;
  readonly shown: Shown | null;
  readonly palette: ScaleName;
  readonly results: Results;
}

export class App implements Listener {
  readonly clock = new ServerClock();
  readonly curves = new Curves();

  readonly link_: Signal<LinkState> = signal({ state: "connecting" });
  /** By the server's clock, when the connection was lost. */
  readonly lostAt: Signal<number | null> = signal(null);
  readonly config: Signal<Config | null> = signal(null);
  readonly server: Signal<Hello | null> = signal(null);
  /** Names of places, once the network is known. */
  readonly places: Signal<Places> = signal(NOWHERE_KNOWN);
  readonly declared: Signal<readonly Declaration[] | null> = signal(null);
  readonly state: Signal<Status | null> = signal(null);
  readonly work: Signal<Pipeline | null> = signal(null);
  readonly troubles: Signal<readonly string[]> = signal([]);
  /** The page that was asked for; null: the first that there is something on. */
  readonly asked: Signal<Page | null>;
  /** The job whose page is shown; null: the first. */
  readonly job: Signal<string | null>;
  /** The edge of that job's graph whose rows are shown. */
  readonly edge: Signal<string | null>;
  readonly selection: Signal<Selection | null>;
  readonly choices: Signal<ReadonlyMap<string, Choice>>;
  /** Grows when results of any job have changed. */
  readonly revision: Signal<number> = signal(0);
  /** Once a second: ages on the page grow with it. */
  readonly second: Signal<number> = signal(0);

  private readonly results = new Map<string, Results>();
  private untouched: boolean;

  constructor(link: Permalink) {
    this.asked = signal(link.page);
    this.job = signal(link.job);
    this.edge = signal(link.edge);
    this.selection = signal(link.selection);
    this.untouched = link.layers === null;
    const high = new Set(link.high);
    this.choices = signal(
      new Map([...(link.layers ?? [])].map(([job, value]) => [job, { on: true, value, high: high.has(job) }])),
    );
  }

  /** Whether any job has a place on a map; null while the jobs are not known. */
  readonly hasMap: ReadonlySignal<boolean | null> = computed(() => this.declared.value?.some(isOnMap) ?? null);

  /** The page that is shown; null while it depends on jobs that are not known yet. */
  readonly page: ReadonlySignal<Page | null> = computed(() => {
    const [asked, hasMap] = [this.asked.value, this.hasMap.value];
    if (asked !== null && asked !== "map") return asked;
    if (hasMap === null) return null;
    return hasMap ? "map" : "board";
  });

  /** The job whose page is shown: the one that was asked for, or the first. */
  readonly jobShown: ReadonlySignal<string | null> = computed(() => this.job.value ?? this.declared.value?.[0]?.run ?? null);

  /** The layers that are on, in the order of the declarations. */
  readonly layers: ReadonlySignal<readonly Layer[]> = computed(() => {
    let cells = 0;
    return (this.declared.value ?? []).flatMap((declaration) => {
      const palette = paletteOf(declaration, declaration.kind === "cells" && declaration.scale === "sequential" ? cells++ : 0);
      const choice = this.choiceOf(declaration.job);
      if (!choice.on) return [];
      const shown = declaration.values.find((each) => each.column === choice.value) ?? declaration.values[0] ?? null;
      return [{ declaration, choice, shown, palette, results: this.resultsOf(declaration.job) }];
    });
  });

  choiceOf(job: string): Choice {
    return this.choices.value.get(job) ?? OFF;
  }

  resultsOf(job: string): Results {
    let found = this.results.get(job);
    if (found === undefined) this.results.set(job, (found = new Results()));
    return found;
  }

  declaration(job: string): Declaration | undefined {
    return this.declared.value?.find((each) => each.job === job);
  }

  /** The entry that is selected, while it is shown. */
  selected(): Entry | undefined {
    const at = this.selection.value;
    return at === null ? undefined : this.resultsOf(at.job).get(at.key);
  }

  choose(job: string, change: Partial<Choice>): void {
    this.untouched = false;
    const choices = new Map(this.choices.value);
    choices.set(job, { ...this.choiceOf(job), ...change });
    batch(() => {
      this.choices.value = choices;
      if (change.on === false && this.selection.value?.job === job) this.selection.value = null;
    });
  }

  select(selection: Selection | null): void {
    this.selection.value = selection;
  }

  /** Go where an address says, as far as it says anything. */
  follow(link: Permalink): void {
    batch(() => {
      this.asked.value = link.page;
      this.job.value = link.job;
      this.edge.value = link.edge;
      this.selection.value = link.selection;
      if (link.layers !== null) {
        const high = new Set(link.high);
        this.untouched = false;
        this.choices.value = new Map(
          [...link.layers].map(([job, value]) => [job, { on: true, value, high: high.has(job) }]),
        );
      }
    });
  }

  open(page: Page, job: string | null = null): void {
    batch(() => {
      this.asked.value = page;
      if (job !== null && job !== this.job.value) {
        this.job.value = job;
        this.edge.value = null;
      }
      // What was selected belongs to the page that is left.
      if (page !== "map") this.selection.value = null;
    });
  }

  /** The jobs whose results are needed: those of the page that is shown. */
  readonly wanted: ReadonlySignal<readonly string[]> = computed(() => {
    const declared = this.declared.value ?? [];
    const cards = declared.filter((each) => cardViews(each).length > 0);
    const names = (some: readonly Declaration[]): string[] => some.map((each) => each.job);
    if (this.page.value === "board") return names(cards);
    if (this.page.value === "job") return names(cards.filter((each) => each.run === this.jobShown.value));
    return this.layers.value.map((layer) => layer.declaration.job);
  });

  /** What the address should say about layers; null while the viewer has chosen nothing. */
  chosenLayers(): { layers: ReadonlyMap<string, string | null> | null; high: string[] } {
    const choices = this.choices.value;
    if (this.untouched) return { layers: null, high: [] };
    const on = [...choices].filter(([, choice]) => choice.on);
    return {
      layers: new Map(on.map(([job, choice]) => [job, choice.value])),
      high: on.filter(([, choice]) => choice.high).map(([job]) => job),
    };
  }

  onWanted(tell: (jobs: readonly string[]) => void): () => void {
    return effect(() => {
      tell(this.wanted.value);
    });
  }

  // ---------------------------------------------------------------- what the connection hears

  link(state: LinkState): void {
    batch(() => {
      this.link_.value = state;
      if (state.state === "connected") {
        this.lostAt.value = null;
        this.troubles.value = [];
      } else {
        this.lostAt.value ??= this.clock.now();
      }
    });
  }

  hello(hello: Hello): void {
    this.clock.set(hello.now);
    this.server.value = hello;
  }

  declarations(declarations: Declaration[]): void {
    batch(() => {
      this.declared.value = declarations;
      if (this.untouched) this.choices.value = firstChoice(declarations);
    });
  }

  status(status: Status): void {
    this.state.value = status;
  }

  pipeline(pipeline: Pipeline): void {
    this.work.value = pipeline;
    if (pipeline.series !== null) this.curves.add(pipeline.series);
  }

  snapshot(snapshot: Snapshot): void {
    this.resultsOf(snapshot.job).replace(snapshot);
    this.revision.value += 1;
  }

  changes(changes: Changes): boolean {
    const fitted = this.resultsOf(changes.job).apply(changes);
    if (fitted) this.revision.value += 1;
    return fitted;
  }

  version(job: string): number | null {
    return this.resultsOf(job).version;
  }

  trouble(text: string): void {
    if (!this.troubles.value.includes(text)) this.troubles.value = [...this.troubles.value, text].slice(-3);
  }
}

/** Layers of cells take the scales in turn; what lies over them has one that stands out from the first. */
function paletteOf({ kind, scale }: Declaration, number: number): ScaleName {
  if (scale === "diverging") return "balance";
  return kind === "arcs" || kind === "edges" ? "ember" : (SEQUENTIAL[number % SEQUENTIAL.length] ?? "water");
}

/** What is on before the viewer has chosen: the first layer of cells, and everything that happens at a point. */
export function firstChoice(declarations: readonly Declaration[]): Map<string, Choice> {
  const placed = declarations.filter((each) => isPlaced(each.kind));
  const first = placed.find((each) => each.kind === "cells") ?? placed[0] ?? declarations[0];
  const points = placed.filter((each) => each.kind === "points");
  // Two jobs with the same columns say the same in two ways (a pattern and its SQL): one of them will do.
  const distinct = points.filter(
    (each, at) => points.findIndex((other) => JSON.stringify(other.columns) === JSON.stringify(each.columns)) === at,
  );
  const on = [...(first === undefined ? [] : [first]), ...distinct];
  return new Map(on.map(({ job }) => [job, { ...OFF, on: true }]));
}
