"""Modules that only some functions need, imported when these are called.

networkx is always there, but takes 80 ms to import, and the default solver does without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def networkx() -> Any:
    """The module networkx."""
    return import_module("networkx")


def matplotlib_figure(size: tuple[float, float]) -> Any:
    """Return an empty matplotlib figure of ``size`` inches that needs no display.

    Raises:
        ImportError: matplotlib is not installed; says how to install it.
    """
    try:
        module = import_module("matplotlib.figure")
    except ImportError as error:
        msg = "plots need matplotlib: pip install 'fxstack-partition[plots]'"
        raise ImportError(msg) from error
    return module.Figure(figsize=size, layout="constrained")
