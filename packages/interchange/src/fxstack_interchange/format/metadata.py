"""The closed list of node metadata keys. A pass keeps other data in a table of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from torch.fx import Node

METADATA_KEYS: dict[str, str] = {
    "val": "the node's value: a fake tensor, a symbolic or plain number, or a nest of them",
    "stack_trace": "the line of the user's program that the node comes from, as a traceback",
    "nn_module_stack": "the modules around the call: an ordered map from path to (qualified name, class)",
    "source_fn_stack": "the torch functions the node was decomposed from: pairs of (name, target)",
    "original_name": "the name of the captured node that this node comes from",
    "recompute": "must_save, prefer_save, must_recompute or prefer_recompute",
    "custom": "annotations by torch.fx.traceback.annotate; never saved",
    "unbacked_bindings": "for each data-dependent symbol, the part of the value that defines it",
    "example_value": "the same as val, for backends in the style of torch.compile; never saved",
}


class RecomputeTag(StrEnum):
    """A value of ``meta["recompute"]``, equal to its text. torch's ``print_readable`` prints the member's name."""

    MUST_SAVE = "must_save"
    PREFER_SAVE = "prefer_save"
    MUST_RECOMPUTE = "must_recompute"
    PREFER_RECOMPUTE = "prefer_recompute"


RECOMPUTE_TAGS = tuple(RecomputeTag)


def recompute_tag(tag: object) -> str:
    """Return the ``RecomputeTag`` of a text, or of a member of torch's ``CheckpointPolicy``; an unknown tag as text."""
    text = str(getattr(tag, "name", tag)).lower()
    return RecomputeTag(text) if text in RECOMPUTE_TAGS else text


SAVED_KEYS = tuple(key for key in METADATA_KEYS if key not in ("custom", "example_value"))

_FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+)(?:, in (?P<function>.*))?')


def user_stack(node: Node) -> list[tuple[str, int, str]]:
    """Return file, line and function of each frame in the node's stack trace, outermost first."""
    trace = node.meta.get("stack_trace")
    matches = _FRAME.finditer(trace) if isinstance(trace, str) else ()
    return [(match["file"], int(match["line"]), match["function"] or "") for match in matches]


def user_line(node: Node) -> str | None:
    """Return ``file:line: source text`` of the innermost frame in the node's stack trace.

    Return None for a node without a stack trace.
    """
    frame = user_frame(node)
    if frame is None:
        return None
    file, line, text = frame
    return f"{file}:{line}: {text}" if text else f"{file}:{line}"


def user_frame(node: Node) -> tuple[str, int, str] | None:
    """Return file, line and source text of the innermost frame in the node's stack trace.

    Return None for a node without a stack trace.
    """
    return next(frames(node), None)


def frames(node: Node) -> Iterator[tuple[str, int, str]]:
    """Yield file, line and source text of the frames in the node's stack trace, innermost first."""
    trace = node.meta.get("stack_trace")
    lines = trace.rstrip().splitlines() if isinstance(trace, str) else []
    for index in range(len(lines) - 1, -1, -1):
        match = _FRAME.search(lines[index])
        if match:
            text = lines[index + 1].strip() if index + 1 < len(lines) else ""
            yield match["file"], int(match["line"]), text
