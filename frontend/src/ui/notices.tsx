/** What is not as it should be, in sentences, most important first. */
import * as format from "../format";
import type { App } from "../state/app";

export interface Notice {
  readonly id: string;
  readonly severity: "error" | "warning" | "info";
  readonly text: string;
}

export function noticesOf(app: App): Notice[] {
  const found: Notice[] = [];
  const link = app.link_.value;
  const now = app.clock.now();
  if (link.state === "refused") {
    found.push({ id: "link", severity: "error", text: `The server refused the connection: ${link.why}` });
  } else if (link.state === "lost") {
    const since = app.lostAt.value;
    // No age in here: a sentence that changes every second would be read aloud every second.
    const when = since === null ? "" : ` at ${format.time(since, now)}; what you see is from then`;
    found.push({
      id: "link",
      severity: "error",
      text: `The connection to the dashboard's server was lost${when}. Trying again; if it does not come back, see whether it runs: headrace dashboard.`,
    });
  } else if (link.state === "connecting") {
    found.push({ id: "link", severity: "info", text: "Connecting to the dashboard's server …" });
  }
  const status = app.state.value;
  if (link.state === "connected" && status !== null) {
    if (status.broker.state === "gone") {
      const text = status.broker.text || "Kafka cannot be reached, so nothing new arrives. Start the broker, or see whether its address is right.";
      found.push({ id: "broker", severity: "error", text });
    } else if (status.broker.state === "connecting") {
      found.push({ id: "broker", severity: "info", text: status.broker.text || "The server is connecting to Kafka …" });
    } else {
      const old = status.parts.filter((part) => part.stale || part.state === "restarting");
      if (old.length > 0) {
        const names = old.map((part) => (part.refreshed === null ? part.name : `${part.name} (as of ${format.time(part.refreshed, now)})`));
        const text = `Some figures are not current: ${names.join(", ")}. The pipeline page and the dashboard's log say why.`;
        found.push({ id: "parts", severity: "warning", text });
      }
      found.push(...jobNotices(app));
    }
  }
  found.push(...app.troubles.value.map((text): Notice => ({ id: text, severity: "warning", text })));
  return found;
}

const SEVERITY: Record<string, Notice["severity"]> = { missing: "info", failed: "error" };

function jobNotices(app: App): Notice[] {
  const page = app.page.value;
  const wanted = app.wanted.value;
  if (page === "map" && wanted.length === 0 && (app.declared.value ?? []).length > 0) {
    return [{ id: "none", severity: "info", text: "No layer is switched on. Choose one in the list of layers." }];
  }
  const shown = (app.declared.value ?? []).filter((declaration) => wanted.includes(declaration.job));
  const states = shown.map((declaration) => ({ declaration, status: app.state.value?.jobs.get(declaration.job) }));
  const wrong = states.filter(({ status }) => status !== undefined && ["failed", "stopped", "silent", "missing"].includes(status.state));
  const found = wrong.map(({ declaration, status }): Notice => {
    const text = status?.text ?? "";
    return {
      id: `job/${declaration.job}`,
      severity: SEVERITY[status?.state ?? ""] ?? "warning",
      text: text || `${declaration.title} is ${status?.state ?? "silent"}: nothing new arrives. See the pipeline page.`,
    };
  });
  const waiting = states.filter(({ status }) => status?.state === "waiting");
  // One sentence while everything waits; where something is seen already, the badge of the layer is enough.
  if (waiting.length > 0 && waiting.length === states.length) {
    const text = waiting[0]?.status?.text ?? "";
    found.push({
      id: "waiting",
      severity: "info",
      text: text || "No data yet. The first results appear some seconds after their job has started (Spark takes about 20 s).",
    });
  }
  return found;
}

const MARK: Record<Notice["severity"], string> = { error: "!", warning: "!", info: "i" };

export function Notices({ app }: { app: App }) {
  const notices = noticesOf(app).slice(0, 3);
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.map((notice) => (
        <p key={notice.id} class="notice" data-severity={notice.severity} data-notice={notice.id.startsWith("job/") ? "job" : notice.id}>
          <span class="notice-mark" aria-hidden="true">{MARK[notice.severity]}</span>
          <span>{notice.text}</span>
        </p>
      ))}
    </div>
  );
}
