"""Where control goes between operations, and which variables may still be read: for resume functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fxstack_capture.emit.assemble import Body, Op

_LEAVES = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "RETURN_GENERATOR"})
_ALWAYS_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_READS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"})
_WRITES = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})


def successors(body: Body) -> list[list[int]]:
    """For each operation the indices of what may come next, exception handlers included."""
    index = {op: i for i, op in enumerate(body.ops)}
    following: list[list[int]] = []
    for i, op in enumerate(body.ops):
        after = [] if op.target is None else [index[op.target]]
        if op.name not in _LEAVES and op.name not in _ALWAYS_JUMPS and i + 1 < len(body.ops):
            after.append(i + 1)
        following.append(after)
    for entry in body.protected:
        end = len(body.ops) if entry.end is None else index[entry.end]
        for i in range(index[entry.first], end):
            following[i].append(index[entry.handler])
    return following


def live_before(body: Body, wanted: Op) -> frozenset[int]:
    """Local slots that may be read from ``wanted`` on before they are written.

    Deleting counts as reading: whether a variable is bound decides if ``del`` raises.
    """
    following = successors(body)
    predecessors: list[list[int]] = [[] for _ in body.ops]
    for i, after in enumerate(following):
        for j in after:
            predecessors[j].append(i)
    live: list[frozenset[int]] = [frozenset()] * len(body.ops)
    pending = set(range(len(body.ops)))
    while pending:
        i = max(pending)
        pending.discard(i)
        op = body.ops[i]
        value: set[int] = set()
        for j in following[i]:
            value |= live[j]
        if op.name in _WRITES:
            value.discard(op.arg)
        if op.name in _READS:
            value.add(op.arg)
        if value != live[i]:
            live[i] = frozenset(value)
            pending.update(predecessors[i])
    return live[body.ops.index(wanted)]


def handler_of(body: Body, op: Op) -> int | None:
    """Index in ``body.protected`` of the range that covers ``op``."""
    index = {o: i for i, o in enumerate(body.ops)}
    where = index[op]
    for number, entry in enumerate(body.protected):
        end = len(body.ops) if entry.end is None else index[entry.end]
        if index[entry.first] <= where < end:
            return number
    return None
