"""Modules that only some functions need, imported when these are called.

networkx and SciPy are always there, but take 80 and 800 ms to import, and a process that finds its partitions in the
disk cache needs neither. torch's counts of operations import Triton where it is installed, another 200 ms.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def networkx() -> Any:
    """The module networkx."""
    return import_module("networkx")


def scipy(part: str) -> Any:
    """The module ``scipy.part``."""
    return import_module(f"scipy.{part}")


def flop_registry() -> Mapping[Any, Callable[..., Any]]:
    """Torch's formulas for the operations of matrix products, convolutions and attention, by operator."""
    registry: Mapping[Any, Callable[..., Any]] = import_module("torch.utils.flop_counter").flop_registry
    return registry


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
