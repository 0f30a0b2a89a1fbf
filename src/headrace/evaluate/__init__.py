"""Evaluation: how fast is it, what does it cost, is it right, and where does it end?

`headrace evaluate` runs the whole pipeline (broker, load generator, jobs on Spark) at several volumes, several times
each, and writes a report with plots and the raw data. The parts:

    plan          what is to be run, and how long that takes
    subject       what is evaluated: jobs, their markers, their load
    parts         starting and stopping broker, generator and jobs
    visibility    when results become visible to readers, committed and not
    backlog       how many events wait in Kafka
    meter         processor time and memory of each part
    measures      figures of the raw data of a trial
    judgement     whether a trial is valid, and whether its volume was held
    parity        whether the results are those of a batch over the same input
    sizes         bytes per event
    trial         one volume, once
    campaign      all of them, continued after an interruption, and the search for the highest volume
    figures, plots, report, wording    what is read from it
"""

from __future__ import annotations

from headrace.extras import require

require("spark", by="headrace.evaluate")
