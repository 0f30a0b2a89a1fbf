"""The Spark session: its settings, its Java code, and what workers need: packages, the user's modules."""
