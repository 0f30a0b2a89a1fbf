"""An application of Headrace: live analysis of Helsinki's public transport. It comes in by entry points only."""
