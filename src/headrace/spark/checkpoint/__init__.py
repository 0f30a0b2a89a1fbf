"""The checkpoint: whom it belongs to, where it stands, and whether it still fits its topics and its results."""
