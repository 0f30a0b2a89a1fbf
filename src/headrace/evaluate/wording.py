"""What a report says in words, apart from how its tables are made."""

from __future__ import annotations

from headrace.evaluate.judgement import BEHIND, FOREIGN_CORES, RISE


def _joined(text: str) -> str:
    return " ".join(text.split())


LATENCY = _joined("""
    From the moment a result was due (the end of its window; the time of the event that completed a pattern) until a
    reader had it in hand; dotted: a reader that does not wait for transactions to end. Jobs wait one second for events
    that are out of order: that second is in every figure. In brackets, where the true value lies with 95 % confidence,
    by windows, not by rows; (?) means that too few windows or results stand behind it to say. Runs differ, too: the
    last column is the range of the trials' own medians.
""")

HELD = _joined(f"""
    A volume is held if the median backlog of the last third of a trial is at most {RISE:g} s of events above that of
    the first third, and every window came. Events per second and core: by what broker and jobs used.
""")

PARITY = _joined("""
    Every result that the stream committed, compared with a batch of the same jobs over the same input. Approximate:
    equal but for a fraction that comes from a sketch.
""")

SIZES = _joined("""
    An event of the load: its value alone, then what its record takes in the broker's log by compression, key and batch
    headers included.
""")

RAW = _joined("""
    Raw data of each trial are beside this page, in the folder trials: results as readers saw them, markers, progress
    of every micro-batch, load, processor time and memory.
""")

LIMITS = [
    _joined(text)
    for text in (
        f"""
        The load generator ran on the same machine as what it loads, so at high volumes it competes for cores. Its
        events carry the time of its schedule; if it falls more than {BEHIND:g} s behind, the trial is not valid. So a
        generator that is slow makes a trial useless, not good-looking.
        """,
        """
        Results are timed when a reader in the measuring process has them in hand; reading and decoding happen on the
        same cores.
        """,
        "Kafka's timestamps are whole milliseconds. All clocks are the same one.",
        """
        Confidence intervals say how far chance within these runs may have moved a figure. Other hours and other
        machines are not in them.
        """,
        f"Somebody else's use of more than {FOREIGN_CORES:g} cores is told as a remark of the trial.",
    )
]
