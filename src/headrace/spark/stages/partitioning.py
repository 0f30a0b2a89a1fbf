"""The spread of key groups over Spark's state partitions.

Spark puts a key into the partition that its hash says, and the hashes of a few small numbers fall as they like: those
of 0 to 3 put three groups into one of two partitions, and a batch takes as long as the fuller one. So each group is
given a key whose hash says the partition that it should have. Were the hash another one some day, the spread would be
worse and nothing would be wrong.
"""

from __future__ import annotations

from itertools import count

#: The group's number is in the lower bits of its key.
_BITS = 20
_WORD = 0xFFFFFFFF
#: More groups than this fall evenly enough by themselves.
_MOST = 1_024


def group_of(key: int) -> int:
    """Tell the number of the group that a key stands for.

    >>> [group_of(key) for key in group_keys(4, 2)]
    [0, 1, 2, 3]
    """
    return key & ((1 << _BITS) - 1)


def group_expression(key: str) -> str:
    """Say in SQL how to get from a key to the number of its group.

    >>> group_expression("key.group")
    'key.group & 1048575'
    """
    return f"{key} & {(1 << _BITS) - 1}"


def group_keys(groups: int, partitions: int) -> list[int]:
    """Give each group a key that Spark puts into partition `number % partitions`.

    >>> [spark_hash(key) % 3 for key in group_keys(6, 3)]
    [0, 1, 2, 0, 1, 2]
    """
    return [_key(number, partitions) for number in range(groups)]


def spread_expression(groups: int, partitions: int) -> str:
    """Say in SQL how to get from the column `group`, a number, to the group's key.

    >>> spread_expression(2_000, 2)
    'group'
    """
    if groups > _MOST:
        return "group"
    keys = ", ".join(map(str, group_keys(groups, partitions)))
    return f"element_at(array({keys}), group + 1)"


def _key(number: int, partitions: int) -> int:
    return next(
        key for attempt in count() if spark_hash(key := number | attempt << _BITS) % partitions == number % partitions
    )


def spark_hash(value: int) -> int:
    """Hash a number as Spark does to find its partition: Murmur3 of 32 bits with seed 42.

    >>> spark_hash(0), spark_hash(1)
    (933211791, -559580957)
    """
    mixed = _rotated(value * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    found = (_rotated(42 ^ mixed, 13) * 5 + 0xE6546B64 & _WORD) ^ 4
    found = (found ^ found >> 16) * 0x85EBCA6B & _WORD
    found = (found ^ found >> 13) * 0xC2B2AE35 & _WORD
    found ^= found >> 16
    return found - (1 << 32) if found >> 31 else found


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD
