"""Bytes and seconds as text for people."""

from __future__ import annotations


def bytes_text(count: float) -> str:
    """Return a number of bytes as text, in units of 1000."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def seconds_text(seconds: float) -> str:
    """Return seconds as text, in the unit that gives few digits."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"
