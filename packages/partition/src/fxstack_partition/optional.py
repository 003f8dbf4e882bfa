"""Modules that only some functions need, imported when these functions are called.

networkx and SciPy are always installed, but their imports take 80 and 800 ms. A process that finds its
partitions in the disk cache needs neither. torch's flop formulas import Triton if it is installed: another
200 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def networkx() -> Any:
    """Return the module networkx. It is imported at the first use, which takes 80 ms."""
    return import_module("networkx")


def scipy(part: str) -> Any:
    """Return the module ``scipy.part``, for example ``scipy.sparse``. It is imported at the first use."""
    return import_module(f"scipy.{part}")


def flop_registry() -> Mapping[Any, Callable[..., Any]]:
    """Return torch's flop formulas (matrix products, convolutions, attention), by operator."""
    registry: Mapping[Any, Callable[..., Any]] = import_module("torch.utils.flop_counter").flop_registry
    return registry


def matplotlib_figure(size: tuple[float, float]) -> Any:
    """Return an empty matplotlib figure of ``size`` inches that needs no display.

    Raises:
        ImportError: if matplotlib is not installed. The text says how to install it.
    """
    try:
        module = import_module("matplotlib.figure")
    except ImportError as error:
        msg = "plots need matplotlib: pip install 'fxstack-partition[plots]'"
        raise ImportError(msg) from error
    return module.Figure(figsize=size, layout="constrained")
