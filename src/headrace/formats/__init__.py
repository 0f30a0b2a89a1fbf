"""Formats of records that others write: bytes to columns and back."""
