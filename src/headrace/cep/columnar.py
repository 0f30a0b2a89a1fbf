"""All matches of many keys at once.

`headrace.cep.threads` follows the threads of one key, row by row, in Python. A key group has thousands of keys with a
row or two each: here the same moves are made for all keys together. Threads are rows of a table (arrays for key, place
in the program, path, deadline), paths are nodes in another (parent, label, row). One **round** takes the next row of
every key that has one, and makes each move of the program for all threads that stand before it, as array operations.

A round costs the same for one key as for thousands, so when few keys with few threads have rows left, they are handed
to `Threads` and come back as table rows. The two give the same answer; a property test says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.cep import tables
from headrace.cep.first_matches import MANY_ROWS, FirstMatches, one_match_per_start
from headrace.cep.limits import Limit
from headrace.cep.matcher import Path, Rows
from headrace.cep.tables import Decided, ThreadTable
from headrace.cep.threads import NEVER, Found, KeyRun, Thread, Threads
from headrace.cep.vectors import Asked, Facts
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.cep.program import Program, Term
    from headrace.cep.skip import Skip
    from headrace.cep.tables import Bools, Ints, Nodes


#: With fewer keys and threads than this in a round, following each key by itself is quicker.
FEW_KEYS: Final = 40

#: A key that has so many times more threads than these few is followed in rounds again.
_MANY: Final = 4


class Columnar:
    """Follows the threads of all keys of a batch.

    Args:
        program: The compiled pattern.
        rows: The rows of all keys, with masks and path conditions.
        skip: What a match gives away.
        nodes: Paths so far.
        threads: Threads so far; keys are numbers from 0.
        held: Matches that wait, by key.
        limit: Bound on the partial matches of one key.
        last: The rows that are the last of their key here; None if that is not known.
        few_keys: With fewer keys in a round each is followed by itself.
        matches_only: Whether partial matches that come to nothing are of no interest to anybody; then those that cannot
            give a match, because another gives it before them, need not be followed.
    """

    def __init__(
        self,
        program: Program,
        rows: Rows,
        *,
        skip: Skip,
        nodes: Nodes,
        threads: ThreadTable,
        held: ThreadTable,
        limit: Limit | None = None,
        last: Bools | None = None,
        few_keys: int = FEW_KEYS,
        matches_only: bool = False,
    ) -> None:
        if rows.times is None:
            raise HeadraceError("rows of many keys need times")
        self.limit = limit or Limit()
        self.machine = Threads(program, rows, skip=skip, limit=self.limit)
        self.program = program
        self.rows = rows
        self.times: Ints = rows.times
        self.skip = skip
        self.nodes = nodes
        self.threads = threads
        self.few_keys = few_keys
        self.matches = Decided()
        self.timed_out = Decided()
        #: The first rows of partial matches that were given up.
        self.given_up: list[int] = []
        self._label_number = {name: number for number, name in enumerate(program.labels)}
        table = self.machine.table
        rests = [table.rests.get(at) for at in range(len(program.instructions))]
        self._bounds = np.array([NEVER if r is None or r.within is None else r.within for r in rests], dtype=np.int64)
        self._completes = np.array([r is not None and r.completes for r in rests], dtype=np.bool_)
        self._bounded = bool((self._bounds < NEVER).any())
        self._hold(held)
        #: With more nodes than this, those of partial matches that have ended are forgotten.
        self._compact_at = tables.MAX_HELD_ROWS // 2
        self.facts = Facts(self._label_number, rows.numbers)
        if rows.vectors:
            self.facts.add_all(*nodes.arrays())
        self._begins = self.machine.any_mask(self.machine.begin_moves)
        # How many partial matches there are counts where some may be given up, also if they end with the next row.
        if last is not None and self.limit.at_limit == "fail":
            self._begins = self._living(last)
        self.machine.begin_at(self._begins)
        one_each = matches_only and self.limit.at_limit == "fail"
        self._one_each = one_each and one_match_per_start(skip, self.machine)
        alike = self._one_each and not rows.paths
        # Without a time bound, what waits at a place gives a match whenever what began later and waits there would. The
        # row that completes it must be its last, or what began before that row would be kept.
        self._one_per_place = (
            alike
            and skip.kind == "past_last"
            and program.within is None
            and not any(move.kind == "pass" and move.accepts for moves in table.moves.values() for move in moves)
        )
        self._one_per_start = alike
        self.machine.one_per_start, self.machine.one_per_place = alike, self._one_per_place

    def _living(self, last: Bools) -> Bools:
        """The rows at which a partial match begins that does not end with the next row, and nobody would know."""
        table, within = self.machine.table, self.program.within
        found = np.zeros(self.rows.count, dtype=np.bool_)
        for move in self.machine.begin_moves:
            here = self.machine.any_mask([move])
            if not move.accepts:
                following = [onward for onward in table.moves.get(move.target, ()) if onward.kind != "stop"]
                goes_on = np.append(self.machine.any_mask(following)[1:], True) | last
                bound = min(NEVER if within is None else within, int(self._bounds[max(move.target, 0)]))
                if bound < NEVER:
                    goes_on[:-1] |= self.times[1:] - self.times[:-1] >= bound
                here = here & goes_on
            found |= here
        return found

    # Between tables and objects

    def _objects(self, table: ThreadTable) -> list[Thread]:
        names = self.program.labels
        return [
            Thread(at, self.nodes.path(node, names), start, start_time, deadline)
            for at, node, start, start_time, deadline in zip(
                *(column.tolist() for column in table.columns()[1:]), strict=True
            )
        ]

    def _node_of(self, path: Path, known: dict[int, int]) -> int:
        """The node of a path, added where it is not there yet."""
        chain: list[Path] = []
        link: Path | None = path
        while link is not None and link.parent is not None and id(link) not in known:
            chain.append(link)
            link = link.parent
        node = -1 if link is None or link.parent is None else known[id(link)]
        for link in reversed(chain):
            place = (node, self._label_number[link.label], link.row)
            node = known[id(link)] = self.nodes.add_one(*place)
            if self.rows.vectors:
                self.facts.add(*(np.array([each], dtype=np.int64) for each in place))
        return node

    def _table(self, key: int, threads: list[Thread], known: dict[int, int]) -> ThreadTable:
        columns = [(key, t.at, self._node_of(t.path, known), t.start, t.start_time, t.deadline) for t in threads]
        return ThreadTable(*np.array(columns, dtype=np.int64).reshape(len(threads), 6).T)

    def held_table(self) -> ThreadTable:
        """The matches that wait."""
        known = {id(path): node for node, path in self.nodes.known_paths().items()}
        tables = [self._table(key, threads, known) for key, threads in self.held.items() if threads]
        return ThreadTable.concat(tables) if tables else ThreadTable.empty()

    # The run

    def run(self, key_of_run: Ints, begin: Ints, end: Ints, *, apart: bool = False) -> None:
        """Go through the rows of all keys.

        Args:
            key_of_run: The keys that have rows.
            begin: Their first rows.
            end: The rows after their last.
            apart: Finish some keys before others are begun, so that not all partial matches are there at once.
        """
        if not len(key_of_run):
            return
        if not apart:
            self._together(key_of_run, begin, end)
            return
        # At most, each row begins a partial match that holds all rows after it.
        most = np.cumsum((end - begin) ** 2) // max(tables.MAX_HELD_ROWS // 4, 1)
        for part in np.split(np.arange(len(most)), np.flatnonzero(np.diff(most)) + 1):
            self._together(key_of_run[part], begin[part], end[part])

    def _together(self, keys: Ints, begin: Ints, end: Ints) -> None:
        """Go through the rows of some keys, in each round one row of each of them."""
        resting: list[ThreadTable] = []
        held = max(self.held, default=-1)
        threads = int(self.threads.key.max()) if len(self.threads) else -1
        self._keys = 1 + max(int(keys.max()), threads, held)
        if self._one_each:
            begin = self._first_matches(keys, begin, end)
            going_on = begin < end
            keys, begin, end = keys[going_on], begin[going_on], end[going_on]
        # Threads of keys that have no more rows are laid aside, so that a round does not go through them.
        parted = 2 * len(keys) + 1
        while len(keys):
            if self.nodes.count > self._compact_at:
                resting = self._compact(resting)
            if 2 * len(keys) < parted:
                parted = len(keys)
                mine = np.isin(self.threads.key, keys)
                if not mine.all():
                    resting.append(self.threads.pick(~mine))
                    self.threads = self.threads.pick(mine)
            if len(keys) + len(self.threads) < self.few_keys:
                begin = self._each(keys, begin, end)
            else:
                self._round(keys, begin)
                begin = begin + 1
            left = begin < end
            if not left.all():
                keys, begin, end = keys[left], begin[left], end[left]
        if resting:
            self.threads = ThreadTable.concat([*resting, self.threads])
        if self.nodes.count > tables.MAX_HELD_ROWS:
            self._compact([])

    def _compact(self, resting: list[ThreadTable]) -> list[ThreadTable]:
        """Forget the paths of partial matches that have ended; returns the resting ones with their new nodes."""
        held = self.held_table()
        groups = [*resting, self.threads, held]
        decided = [np.array(each.node, dtype=np.int64) for each in (self.matches, self.timed_out)]
        renumbered = self.nodes.keep(np.concatenate([*(group.node for group in groups), *decided]))
        for group in groups:
            group.node = renumbered[group.node]
        for each, nodes in zip((self.matches, self.timed_out), decided, strict=True):
            each.node = renumbered[nodes].tolist()
        self._hold(held)
        if self.rows.vectors:
            self.facts = Facts(self._label_number, self.rows.numbers)
            self.facts.add_all(*self.nodes.arrays())
        if self.nodes.count > tables.MAX_HELD_ROWS:
            raise tables.too_many_rows()
        self._compact_at = self.nodes.count + tables.MAX_HELD_ROWS // 2
        return resting

    def _hold(self, held: ThreadTable) -> None:
        """Take matches that wait from a table."""
        self.held: dict[int, list[Thread]] = {}
        for thread, key in zip(self._objects(held), held.key.tolist(), strict=True):
            self.held.setdefault(key, []).append(thread)

    def _first_matches(self, keys: Ints, begin: Ints, end: Ints) -> Ints:
        """Find the matches of keys with many rows as far as they are known; returns the row each has come to."""
        many = np.flatnonzero(end - begin >= MANY_ROWS)
        if not len(many):
            return begin
        search = FirstMatches(self.program, self.machine, self.times, self.skip, self._begins)
        if not search.usable:
            return begin
        reached, over = begin.copy(), np.zeros(self._keys, dtype=np.bool_)
        known_nodes = self.nodes.count
        waiting = self.threads.pick(np.lexsort((self.threads.start, self.threads.key)))
        for place in many.tolist():
            key = int(keys[place])
            if key in self.held:
                continue
            low, high = np.searchsorted(waiting.key, [key, key + 1])
            partial = waiting.pick(np.arange(low, high))
            firsts = search.find(int(begin[place]), int(end[place]), partial, self.nodes.arrays()[2])
            if firsts.keeps_waiting:
                continue
            over[key], reached[place] = True, firsts.goes_on
            for (node, path), time in zip(firsts.matches, firsts.times, strict=True):
                self.matches.key.append(key)
                self.matches.node.append(self.nodes.add_path(node, path))
                self.matches.time.append(time)
        self.threads = self.threads.pick(~over[self.threads.key])
        if self.rows.vectors:
            self.facts.add_all(*(column[known_nodes:] for column in self.nodes.arrays()))
        return reached

    def _each(self, keys: Ints, begin: Ints, end: Ints) -> Ints:
        """Follow some keys one by one; returns the row each has come to."""
        reached = end.copy()
        mine = np.isin(self.threads.key, keys)
        taken = self.threads.pick(mine)
        objects = self._objects(taken)
        runs: dict[int, KeyRun] = {key: KeyRun(held=self.held.pop(key, [])) for key in keys.tolist()}
        for key, thread in zip(taken.key.tolist(), objects, strict=True):
            runs[key].threads.append(thread)
        tables = [self.threads.pick(~mine)]
        known: dict[int, int] = {id(path): node for node, path in self.nodes.known_paths().items()}
        found_all: list[Found] = []
        for place, (key, first, last) in enumerate(zip(keys.tolist(), begin.tolist(), end.tolist(), strict=True)):
            run, found = runs[key], Found()
            run.deadline = min((thread.deadline for thread in run.threads), default=NEVER)
            reached[place] = self.machine.feed(run, first, last, found, most=_MANY * self.few_keys)
            self._collect(key, found, known)
            found_all.append(found)  # keeps the paths, whose identity is in `known`
            if run.threads:
                tables.append(self._table(key, run.threads, known))
            if run.held:
                self.held[key] = run.held
        self.threads = ThreadTable.concat(tables)
        return reached

    def _collect(self, key: int, found: Found, known: dict[int, int]) -> None:
        for thread, time in zip(found.matches, found.match_times, strict=True):
            self.matches.key.append(key)
            self.matches.node.append(self._node_of(thread.path, known))
            self.matches.time.append(time)
        for thread in found.timed_out:
            self.timed_out.key.append(key)
            self.timed_out.node.append(self._node_of(thread.path, known))
            self.timed_out.time.append(thread.deadline)
        self.given_up.extend(thread.start for thread in found.given_up)

    def advance(self, time: int | Ints) -> None:
        """End what is over at a time, for all keys alike or for each key at a time of its own."""
        if len(self.threads):
            if isinstance(time, int):
                time = np.full(int(self.threads.key.max()) + 1, time, dtype=np.int64)
            self._expire(time)

    def _expire(self, time_of_key: Ints) -> None:
        """End threads whose deadline is not after the time of their key; deadline by deadline within a key."""
        while True:
            threads = self.threads
            over = threads.deadline <= time_of_key[threads.key]
            if not over.any():
                return
            earliest = np.full(len(time_of_key), NEVER, dtype=np.int64)
            np.minimum.at(earliest, threads.key[over], threads.deadline[over])
            now = over & (threads.deadline == earliest[threads.key])
            ended = threads.pick(now)
            complete = self._completes[ended.at]
            late = ended.pick(~complete)
            self.timed_out.extend(late.key, late.node, late.deadline)
            self.threads = threads.pick(~now)
            self._release(ended.pick(complete), earliest < NEVER, earliest)

    def _round(self, keys: Ints, row: Ints) -> None:
        """Take one row of each key."""
        busy = np.zeros(self._keys, dtype=np.bool_)
        busy[self.threads.key] = True
        if self.held:
            busy[list(self.held)] = True
        concerned = busy[keys] | self._begins[row]
        if not concerned.all():
            keys, row = keys[concerned], row[concerned]
        if len(keys):
            self._take(keys, row)

    def _take(self, keys: Ints, row: Ints) -> None:
        """Take one row of each key that it concerns."""
        size = self._keys
        row_of_key = np.full(size, -1, dtype=np.int64)
        row_of_key[keys] = row
        if len(self.threads):
            time_of_key = np.full(size, -NEVER, dtype=np.int64)
            time_of_key[keys] = self.times[row]
            self._expire(time_of_key)
        waiting = row_of_key[self.threads.key] < 0
        resting, moving = self.threads.pick(waiting), self.threads.pick(~waiting)
        moved, complete = self._moves(moving, row_of_key, keys, row)
        if self._one_per_start and len(moved) > 1:
            moved = self._without_followers(moved)
        if len(moved) > self.limit.partial:
            moved = self._limited(moved)
        self.threads = ThreadTable.concat([resting, moved])
        if len(complete) or self.held:
            time_of_key = np.zeros(size, dtype=np.int64)
            time_of_key[keys] = self.times[row]
            self._release(complete, row_of_key >= 0, time_of_key)

    def _without_followers(self, threads: ThreadTable) -> ThreadTable:
        """Leave out partial matches that can only come to what a preferred one at the same place comes to."""
        size = len(self.program.instructions)
        places = threads.key * size + threads.at
        if self._one_per_place and not self.held:
            return threads.pick(_first_of(np.ones(len(threads), dtype=np.bool_), places))
        _, start = np.unique(threads.start, return_inverse=True)
        return threads.pick(_first_of(np.ones(len(threads), dtype=np.bool_), places * len(threads) + start))

    def _limited(self, threads: ThreadTable) -> ThreadTable:
        """Give up the oldest threads of each key beyond the bound, if that may be."""
        counts = np.bincount(threads.key)
        if int(counts.max()) <= self.limit.partial:
            return threads
        if self.limit.at_limit == "fail":
            raise self.limit.exceeded(int(counts.max()))
        oldest = np.lexsort((threads.start, threads.key))
        first = np.concatenate(([0], np.cumsum(counts)))[threads.key[oldest]]
        given_up = np.zeros(len(threads), dtype=np.bool_)
        given_up[oldest] = np.arange(len(threads)) - first < (counts - self.limit.partial)[threads.key[oldest]]
        self.given_up.extend(threads.start[given_up].tolist())
        return threads.pick(~given_up)

    def _moves(self, moving: ThreadTable, row_of_key: Ints, keys: Ints, row: Ints) -> tuple[ThreadTable, ThreadTable]:
        """Move all threads that have a row, and begin new ones; returns threads and complete matches."""
        table, within = self.machine.table, self.program.within
        # Every key also has a thread that is about to begin; it comes after the others.
        fresh = len(moving)
        begins = self._begins[row]
        keys, row = keys[begins], row[begins]
        begin = ThreadTable(keys, np.full(len(keys), -1), np.full(len(keys), -1), row, self.times[row], row)
        source = ThreadTable.concat([moving, begin])
        rows_of = row_of_key[source.key]
        stopped = np.zeros(len(source), dtype=np.bool_)
        steps: list[tuple[Ints, Ints, Ints, Ints, Bools, Bools]] = []
        order = 0
        groups = [(table.start, np.arange(fresh, len(source), dtype=np.int64), True)]
        groups += [(int(at), np.flatnonzero(moving.at == at), False) for at in np.unique(moving.at)]
        for at, index, is_begin in groups:
            for move in table.moves[at]:
                if is_begin and move.kind != "take":
                    continue
                order += 1
                chosen = index[self._holds(move.condition, index, rows_of, source)]
                if not len(chosen):
                    continue
                if move.kind == "stop":
                    stopped[chosen] = True
                    continue
                number = self._label_number[move.label] if move.kind == "take" else -1
                accepted = np.zeros(len(chosen), dtype=np.bool_)
                for term in move.accepts:
                    accepted |= self._holds(term, chosen, rows_of, source)
                count = len(chosen)
                steps.append(
                    (
                        chosen,
                        np.full(count, order),
                        np.full(count, number),
                        np.full(count, move.target),
                        accepted,
                        np.full(count, move.target >= 0),
                    )
                )
        if not steps:
            return ThreadTable.empty(), ThreadTable.empty()
        columns = [np.concatenate(part) for part in zip(*steps, strict=True)]
        sorted_by = np.lexsort((columns[1], columns[0]))
        chosen, _, label, target, accepted, lives = (column[sorted_by] for column in columns)
        lives = lives & ~stopped[chosen]
        node = self._nodes_for(source, chosen, label, rows_of)
        start_time = source.start_time[chosen]
        deadline = np.full(len(chosen), NEVER) if within is None else start_time + within
        if self._bounded:
            bound = self._bounds[np.maximum(target, 0)]
            last = self.times[self.nodes.arrays()[2][node]]
            bounded = bound < NEVER
            deadline[bounded] = np.minimum(deadline[bounded], last[bounded] + bound[bounded])
        made = ThreadTable(source.key[chosen], target, node, source.start[chosen], start_time, deadline)
        size = len(self.program.instructions)
        return made.pick(_first_of(lives, node * size + target)), made.pick(_first_of(accepted, node))

    def _nodes_for(self, source: ThreadTable, chosen: Ints, label: Ints, rows_of: Ints) -> Ints:
        """The nodes after a move: new ones for rows taken, one for threads that share path and label."""
        node = source.node[chosen].copy()
        taking = label >= 0
        if taking.any():
            who, what = chosen[taking], label[taking]
            # A thread that begins has no node yet; its key stands for it.
            parent = np.where(source.node[who] >= 0, source.node[who], -2 - source.key[who])
            _, first, inverse = np.unique(
                parent * (len(self._label_number) + 1) + what, return_index=True, return_inverse=True
            )
            added = self.nodes.add(source.node[who][first], what[first], rows_of[who][first])
            if self.rows.vectors:
                self.facts.add(source.node[who][first], what[first], rows_of[who][first])
            node[taking] = added[inverse]
        return node

    def _holds(self, term: Term, index: Ints, rows_of: Ints, source: ThreadTable) -> Bools:
        """For which of some threads a condition holds."""
        mask, asks = self.machine.term(term)
        holds = np.ones(len(index), dtype=np.bool_) if mask is None else mask[rows_of[index]]
        if asks:
            vectors, asks = self.machine.asked(term)
            for vector, wanted in vectors:
                left = np.flatnonzero(holds)
                asked = Asked(self.facts, rows_of[index[left]], source.node[index[left]])
                holds[left] = vector(asked) == wanted
        if asks:
            names = self.program.labels
            for place in np.flatnonzero(holds).tolist():
                thread = int(index[place])
                path, row = self.nodes.path(int(source.node[thread]), names), int(rows_of[thread])
                holds[place] = all(bool(ask(row, path)) is wanted for ask, wanted in asks)
        return holds

    def _release(self, complete: ThreadTable, touched: Bools, time_of_key: Ints) -> None:
        """Let out the matches that nothing earlier can give away any more.

        Args:
            complete: New matches.
            touched: The keys in which anything changed.
            time_of_key: The time of each key.
        """
        if self.skip.kind == "none":
            self.matches.extend(complete.key, complete.node, time_of_key[complete.key])
            return
        for key, thread in zip(complete.key.tolist(), self._objects(complete), strict=True):
            self.held.setdefault(key, []).append(thread)
        keys = [key for key in self.held if touched[key]]
        if not keys:
            return
        wanted = np.zeros(len(touched), dtype=np.bool_)
        wanted[keys] = True
        mine = wanted[self.threads.key]
        starts: dict[int, list[int]] = {}
        for key, start in zip(self.threads.key[mine].tolist(), self.threads.start[mine].tolist(), strict=True):
            starts.setdefault(key, []).append(start)
        keep_of_key = np.zeros(len(touched), dtype=np.int64)
        known = {id(path): node for node, path in self.nodes.known_paths().items()}
        for key in keys:
            run = KeyRun([_started(start) for start in starts.get(key, [])], self.held.pop(key))
            found = Found()
            keep_of_key[key] = self.machine.release(run, [], found, int(time_of_key[key]))
            self._collect(key, found, known)
            if run.held:
                self.held[key] = run.held
        if keep_of_key.any():
            self.threads = self.threads.pick(self.threads.start >= keep_of_key[self.threads.key])


def _started(start: int) -> Thread:
    return Thread(-1, Path.EMPTY, start, 0, NEVER)


def _first_of(wanted: Bools, identity: Ints) -> Ints:
    """The first of each identity among the wanted, in order."""
    index = np.flatnonzero(wanted)
    _, first = np.unique(identity[index], return_index=True)
    return index[np.sort(first)]
