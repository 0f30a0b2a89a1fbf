"""The dashboard's backend: what the jobs answer, live, for browsers and programs.

    result topics -> Reader (a thread) -> Board per job (what is shown now) -> Viewers (Socket.IO) and REST
    headrace.progress, offsets -> Probe (a thread) -> the pipeline's own state

- `declaration`: what a job looks like, for the page.
- `cleaning`: from decoded results to values that are safe to send: finite numbers, valid cells, plain text.
- `board`: the policies: newer replaces older, values expire, retractions remove; versions, snapshots and differences.
- `history`: the last hour of each key, in columns.
- `reader`: reads the result topics with read_committed, and survives a broker that comes and goes.
- `viewers`: who watches what; a slow browser gets the newest state, not a queue.
- `probe`, `figures`, `diagnosis`: the pipeline page, with a sentence where something is wrong.
- `job_graph`, `step_figures`, `sampling`: a job as a graph of steps, with figures, and the newest rows on its edges.
- `access`, `api`, `pages`, `server`: who may ask, what can be asked, and the process.

The protocol is described in docs/dashboard-protocol.md.
"""

from __future__ import annotations

from headrace.extras import require

require("dashboard", by="headrace.dashboard")
