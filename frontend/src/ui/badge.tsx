/** How a job's results are doing, in a word. */
import { number } from "../format";
import type { JobStatus } from "../protocol";

const STATES: Record<string, string> = {
  waiting: "waiting",
  live: "live",
  silent: "silent",
  stopped: "stopped",
  failed: "failed",
  missing: "no topic",
};

export function StateBadge({ id, status }: { id?: string; status: JobStatus | undefined }) {
  const state = status?.state ?? "waiting";
  const text = state === "live" ? number(status?.entries) : (STATES[state] ?? state);
  return (
    <span id={id} class="badge" data-state={state} title={state === "live" ? "entries shown" : (status?.text ?? "")}>
      {text}
      {state === "live" && <span class="unseen"> entries, live</span>}
    </span>
  );
}
