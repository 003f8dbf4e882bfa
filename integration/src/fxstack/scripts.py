"""``fxstack.repro``: write each graph of one call as a script that runs without fxstack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fxstack.api import LOG_ATTRIBUTE, compile


def repro(fn: Callable[..., Any], *args: object, path: str | Path, **kwargs: object) -> list[Path]:
    """Compile ``fn`` anew, call it once with these arguments, and write a script for each graph that runs.

    A script has the graph's C kernels, its host program as Python, inputs with the layouts and ranges of the
    call's inputs, a check against the ATen graph in eager torch, and a timer. Kernels of a backward are
    written only when a backward runs, which ``repro`` does not do: ``compile(fn, options={"repro_dir":
    path})`` writes them too.

    Args:
        fn: A function or module. It may come from ``compile``; then its options are not kept.
        args: The arguments of the call.
        path: A folder, which is created. Scripts get the next free names ``graph_N.py``.
        kwargs: The keyword arguments of the call.

    Returns:
        The scripts, in the order of the calls; none if no part of ``fn`` could be captured.

    Raises:
        Exception: the exception of the call.
    """
    folder = Path(path)
    before = set(folder.glob("graph_*.py"))
    compile(_original(fn), options={"repro_dir": folder})(*args, **kwargs)
    written = set(folder.glob("graph_*.py")) - before
    return sorted(written, key=lambda file: int(file.stem.removeprefix("graph_")))


def _original(fn: Any) -> Callable[..., Any]:
    """Return ``fn`` as it was before it was compiled."""
    if getattr(fn, LOG_ATTRIBUTE, None) is None:
        original = fn
    else:
        original = fn._orig_mod if isinstance(fn, torch.nn.Module) else fn.__wrapped__
    result: Callable[..., Any] = original
    return result
