"""Tokens say which offsets they cover: what counts as out, what is ahead of a checkpoint, where batches must end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import StateError
from headrace.spark.checkpoint.continuity import Gap, Progress, accept_loss, read_progress, read_span
from headrace.spark.checkpoint.positions import Position, Span
from headrace.spark.checkpoint.stale_checkpoint import find_ahead, find_pending, refuse_old, stops_of, with_end, without
from headrace.spark.output.tokens import Token, parsed


def _at(first: int, second: int, now: int = 0) -> Position:
    return Position({"t": {0: first, 1: second}}, now or first + second)


def _token(batch: int, end: Position | None) -> Token:
    return Token("c1", batch, "r1", end=end)


def _checkpoint(path: Path, ends: list[Position], *, committed: int) -> Path:
    """Write the logs of a checkpoint: one planned batch per position, the first ones done."""
    (path / "spark" / "offsets").mkdir(parents=True)
    (path / "spark" / "commits").mkdir()
    (path / "beginning.json").write_text(json.dumps(_at(0, 0, 1).to_dict()))
    for number, end in enumerate(ends):
        (path / "spark" / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end.to_dict())}")
        if number <= committed:
            (path / "spark" / "commits" / str(number)).write_text("v1\n{}")
    return path


class TestSpan:
    def test_a_batch_is_out_by_what_it_reads_not_by_its_number(self) -> None:
        token = _token(49, _at(500, 500))
        assert token.covers(50, Span(_at(100, 100), _at(500, 400)))
        assert not token.covers(10, Span(_at(500, 500), _at(600, 600)))

    def test_a_batch_without_events_lies_where_its_time_does(self) -> None:
        token = _token(4, _at(5, 5, now=100))
        assert token.covers(4, Span(_at(5, 5, now=99), _at(5, 5, now=100)))
        assert not token.covers(5, Span(_at(5, 5, now=100), _at(5, 5, now=101)))

    @pytest.mark.parametrize("end", [_at(600, 500), _at(600, 400)])
    def test_a_batch_that_is_out_in_part_is_refused(self, end: Position) -> None:
        with pytest.raises(StateError, match="a part of this batch are out"):
            Span(_at(100, 100), end).within(_at(500, 500))

    def test_a_partition_that_begins_beyond_does_not_matter_while_nothing_is_read_from_it(self) -> None:
        assert Span(_at(100, 700), _at(500, 700)).within(_at(500, 500))

    def test_a_token_without_offsets_goes_by_the_number(self) -> None:
        span = Span(_at(0, 0), _at(9, 9))
        assert _token(7, None).covers(7, span)
        assert not _token(7, None).covers(8, span)
        assert _token(7, _at(1, 1)).covers(7, None)


class TestAhead:
    def progress(self, planned: Position | None = None) -> Progress:
        end = _at(100, 100)
        return Progress(Path("none"), 9, end.offsets, end.now, planned)

    def test_what_is_done_or_planned_next_fits(self) -> None:
        planned = _at(120, 110)
        fitting = {"old": _token(3, _at(30, 30)), "done": _token(9, _at(100, 100)), "next": _token(10, planned)}
        assert find_ahead(self.progress(planned), fitting) == {}
        assert list(find_pending(self.progress(planned), fitting)) == ["next, batch 10"]

    @pytest.mark.parametrize("planned", [None, _at(120, 111)])
    def test_the_same_number_with_other_offsets_does_not(self, planned: Position | None) -> None:
        token = _token(10, _at(120, 110))
        assert find_ahead(self.progress(planned), {"q": token}) == {"q, batch 10": token}

    def test_an_older_copy_is_found_and_the_choices_are_named(self) -> None:
        token = _token(49, _at(700, 700))
        assert find_ahead(self.progress(), {"q": token}) == {"q, batch 49": token}
        problem = refuse_old(Path("c"), self.progress(), [token])
        assert "it stands at batch 9, and results are out up to batch 49" in problem.message
        assert "1,200 events more" in problem.message
        assert all(choice in problem.hint for choice in ("newest copy", "--accept-old-checkpoint", "--fresh"))

    def test_a_token_without_offsets_is_refused_only_beyond_the_log(self) -> None:
        planned = _at(120, 110)
        assert find_ahead(self.progress(planned), {"q": _token(10, None)}) == {}
        beyond = _token(11, None)
        assert find_ahead(self.progress(planned), {"q": beyond}) == {"q, batch 11": beyond}
        assert find_ahead(None, {"q": _token(0, None)})
        assert "cannot be gone on with" in refuse_old(Path("c"), None, [beyond]).hint

    def test_a_checkpoint_that_lost_everything_is_behind_any_token(self) -> None:
        token = _token(0, _at(1, 0))
        assert find_ahead(None, {"q": token}) == {"q, batch 0": token}

    def test_batches_end_where_the_tokens_do_in_order(self) -> None:
        tokens = [_token(50, _at(800, 700)), _token(49, _at(700, 700)), _token(49, _at(700, 700)), _token(2, _at(1, 1))]
        assert stops_of(self.progress(), tokens) == [_at(700, 700), _at(800, 700)]


class TestLog:
    def test_progress_and_spans(self, tmp_path: Path) -> None:
        ends = [_at(10, 10), _at(20, 20), _at(30, 25)]
        checkpoint = _checkpoint(tmp_path, ends, committed=1)
        progress = read_progress(checkpoint)
        assert progress is not None
        assert (progress.committed, progress.position, progress.planned) == (1, ends[1], ends[2])
        assert read_span(checkpoint, 0) == Span(_at(0, 0, 1), ends[0])
        assert read_span(checkpoint, 2) == Span(ends[1], ends[2])
        with pytest.raises(StateError, match="damaged"):
            read_span(checkpoint, 3)

    def test_a_token_without_offsets_takes_those_of_its_batch(self, tmp_path: Path) -> None:
        checkpoint = _checkpoint(tmp_path, [_at(10, 10), _at(20, 20)], committed=0)
        assert with_end(checkpoint, _token(1, None)).end == _at(20, 20)
        assert with_end(checkpoint, _token(2, None)).end is None

    def test_what_is_planned_anew_after_a_loss_does_not_cover_other_events(self, tmp_path: Path) -> None:
        """The batch was out and not noted by Spark when 50 events behind it expired."""
        ends = [_at(100, 100), _at(170, 180)]
        checkpoint = _checkpoint(tmp_path, ends, committed=0)
        token = _token(1, ends[1])
        before = read_progress(checkpoint)
        assert before is not None
        assert find_ahead(before, {"q": token}) == {}
        accept_loss([Gap("t", 1, 100, 150, 400, renewed=False)], before)
        after = read_progress(checkpoint)
        assert after is not None
        assert (after.position, after.planned) == (_at(100, 150, now=200), None)
        assert stops_of(after, [token]) == [ends[1]]
        assert token.covers(1, Span(after.position, ends[1]))
        assert not token.covers(2, Span(ends[1], _at(400, 400)))

    def test_offsets_of_a_topic_that_was_made_anew_cover_nothing(self) -> None:
        token = _token(7, _at(70, 60))
        gaps = [Gap("t", 0, 70, 0, 900, renewed=True), Gap("t", 1, 60, 3, 40, renewed=False)]
        assert without(token, gaps) == replace(token, end=_at(0, 3, now=130))
        expired = [Gap("t", 0, 70, 80, 900, renewed=False)]
        assert without(token, expired) == token


@pytest.mark.parametrize(
    "value",
    [b"null", b"[]", b"\xff", b'{"token":"c","batch":NaN}', b'{"token":"c","batch":1e400}', b"[" * 100_000],
    ids=["null", "list", "no text", "NaN", "infinite", "deep"],
)
def test_a_record_that_is_no_token_is_named(value: bytes) -> None:
    with pytest.raises(StateError, match=r"the record 'counts' in headrace\.commits is no commit token"):
        parsed("counts", value, Token.from_bytes)
