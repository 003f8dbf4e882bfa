"""Warnings that point at the line of the program which called fxstack."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Final

import torch

OWN_PACKAGES: Final = frozenset(
    {
        "fxstack",
        "fxstack_capture",
        "fxstack_functionalize",
        "fxstack_inductor",
        "fxstack_interchange",
        "fxstack_partition",
    }
)
_TORCH: Final = str(Path(torch.__file__).parent)
_GENERATED: Final = ("<fxstack", "<eval_with_key>")
"""Prefixes of the file names of generated code."""


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn at the innermost line of the stack that belongs neither to fxstack nor to torch."""
    frame = user_frame()
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    name = frame.f_globals.get("__name__", "<string>")
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, name, registry)


def user_frame() -> FrameType:
    """Return the innermost frame that belongs neither to fxstack nor to torch; else the outermost frame."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_inside(frame):
        frame = frame.f_back
    return frame


def _is_inside(frame: FrameType) -> bool:
    """Whether a frame runs code of fxstack or torch, or generated code. A warning shows the nearest frame outside."""
    name = frame.f_globals.get("__name__")
    package = name.partition(".")[0] if isinstance(name, str) else ""
    file = frame.f_code.co_filename
    return package in OWN_PACKAGES or file.startswith(_GENERATED) or belongs_to_torch(file)


def belongs_to_torch(file: str) -> bool:
    """Return whether ``file`` is a source file of torch."""
    return file.startswith(_TORCH)
