"""The events of NEXMark: who registers, what is put up for auction, who bids.

Of 50 events in a row 1 is a new person, 3 are new auctions and 46 are bids, as published; numbers count on. Half of the
bids go to the hot auction of the moment, three quarters of the bids come from the hot bidder of the moment, and three
quarters of the auctions from the hot seller: one in a hundred numbers is hot, and the newest of those counts. The other
bids go to one of the last 100 auctions and come from one of the last 1,000 people.
Prices are spread evenly over the magnitudes from 1 to a million (100 to 100 million cents).

Everything is computed in columns, from the seed and the number of the event alone: the n-th event is always the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from headrace_transit.simulator.chance import uniform

PERSONS, AUCTIONS, BIDS = 1, 3, 46
TOTAL = PERSONS + AUCTIONS + BIDS
FIRST_PERSON, FIRST_AUCTION = 1000, 1000
HOT_EVERY = 100
HOT_BIDS, HOT_BIDDERS, HOT_SELLERS = 2, 4, 4
OPEN_AUCTIONS, ACTIVE_PEOPLE = 100, 1000
CHANNELS = ("Apple", "Baidu", "Facebook", "Google")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
#: What brings a bid to about 100 bytes, an auction to 500 and a person to 200, as published.
PADDING = {"bid": 40, "auction": 430, "person": 120}

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
_INSTANT = pl.Datetime("us", "UTC")
#: Columns of all kinds of events together; each kind has some of them.
SCHEMA = pl.Schema(
    {
        "kind": pl.String,
        "id": pl.Int64,
        "auction": pl.Int64,
        "bidder": pl.Int64,
        "price": pl.Int64,
        "channel": pl.String,
        "seller": pl.Int64,
        "category": pl.Int64,
        "reserve": pl.Int64,
        "name": pl.String,
        "city": pl.String,
        "state": pl.String,
        "extra": pl.String,
        "event_time": _INSTANT,
    }
)
#: Which kind of event says what; the others leave it empty.
OWN = {
    "bid": ("auction", "bidder", "price", "channel"),
    "auction": ("id", "seller", "category", "reserve", "price"),
    "person": ("id", "name", "city", "state"),
}


@dataclass(frozen=True)
class Auctions:
    """An auction house.

    Args:
        rate: Events a second of event time.
        seed: Another seed, other people, prices and auctions.
    """

    rate: int = 10_000
    seed: int = 1

    def events(self, first: int, count: int) -> pl.DataFrame:
        """Give events by their numbers, all kinds together, in order.

        Args:
            first: The first number.
            count: How many.
        """
        number = np.arange(first, first + count)
        place = number % TOTAL
        kind = np.select([place < PERSONS, place < PERSONS + AUCTIONS], ["person", "auction"], "bid")
        people = number // TOTAL  # the newest person, from 0
        auctions = people * AUCTIONS + np.clip(place - PERSONS, 0, AUCTIONS - 1)
        auctions = np.where(place < PERSONS, np.maximum(auctions - 1, 0), auctions)
        hot_auction = auctions // HOT_EVERY * HOT_EVERY
        hot_person = people // HOT_EVERY * HOT_EVERY

        def below(most: int | np.ndarray, purpose: str) -> np.ndarray:
            return (uniform(self.seed, purpose, number) * most).astype(np.int64)

        recent_auction = auctions - below(np.minimum(auctions + 1, OPEN_AUCTIONS), "auction")
        recent_person = people - below(np.minimum(people + 1, ACTIVE_PEOPLE), "person")
        bid, auction, person = kind == "bid", kind == "auction", kind == "person"
        auction_of_bid = np.where(below(HOT_BIDS, "hot auction") > 0, hot_auction, recent_auction)
        bidder = np.where(below(HOT_BIDDERS, "hot bidder") > 0, hot_person, recent_person)
        seller = np.where(below(HOT_SELLERS, "hot seller") > 0, hot_person, recent_person)
        price = np.round(10 ** (uniform(self.seed, "price", number) * 6) * 100).astype(np.int64)
        begin = (START - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        time = begin + number * 1_000_000 // self.rate
        words = {
            "channel": np.array(CHANNELS)[below(len(CHANNELS), "channel")],
            "city": np.array(CITIES)[below(len(CITIES), "city")],
            "state": np.array(STATES)[below(len(STATES), "state")],
        }
        whole = pl.DataFrame(
            {
                "kind": kind,
                "id": np.where(person, people + FIRST_PERSON, auctions + FIRST_AUCTION),
                "auction": auction_of_bid + FIRST_AUCTION,
                "bidder": bidder + FIRST_PERSON,
                "price": price,
                "seller": seller + FIRST_PERSON,
                "category": 10 + below(5, "category"),
                "reserve": price + price // 2,
                "name": [f"person {each}" for each in people],
                **words,
                "event_time": pl.Series(time).cast(_INSTANT),
            }
        ).with_columns(extra=pl.col("kind").replace_strict({name: "x" * size for name, size in PADDING.items()}))
        kinds = {"bid": bid, "auction": auction, "person": person}
        columns = {}
        for name in SCHEMA:
            owners = [kinds[owner] for owner, names in OWN.items() if name in names]
            known = pl.Series(np.logical_or.reduce(owners)) if owners else None
            columns[name] = pl.col(name) if known is None else pl.when(known).then(pl.col(name))
        return whole.select(**columns).cast(dict(SCHEMA))
