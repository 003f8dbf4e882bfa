"""Control flow, and liveness of variables. Resume functions get only the variables that later code may read."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType

from fxstack_capture.bytecode.assemble import Body, Op
from fxstack_interchange.bytecode import Kind, opcodes_of

FRAME_READERS = frozenset(
    {"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "stack", "f_locals"}
)
"""Names of functions and attributes that give access to the variables of a frame."""
_CALLS = opcodes_of(Kind.CALLS)
_NEVER_CONTINUES = opcodes_of(Kind.RETURNS | Kind.RAISES | Kind.RERAISES | Kind.STARTS_GENERATOR | Kind.JUMPS)
_READS = opcodes_of(Kind.READS_LOCAL)
_BINDS = opcodes_of(Kind.BINDS_LOCAL)


def successors(body: Body) -> list[list[int]]:
    """Return the successors of each operation of ``body.ops``, as indices. Exception handlers are included."""
    index = {op: i for i, op in enumerate(body.ops)}
    following: list[list[int]] = []
    for i, op in enumerate(body.ops):
        after = [] if op.target is None else [index[op.target]]
        if op.name not in _NEVER_CONTINUES and i + 1 < len(body.ops):
            after.append(i + 1)
        following.append(after)
    for entry in body.protected:
        end = len(body.ops) if entry.end is None else index[entry.end]
        for i in range(index[entry.first], end):
            following[i].append(index[entry.handler])
    return following


@dataclass(frozen=True, slots=True)
class Flow:
    """A body, and the variables that are live before each operation.

    A variable is live if later code may read it before binding it.
    """

    body: Body
    live: dict[Op, int]
    """Maps an operation to its live variables: a bit set of slots."""

    def live_before(self, op: Op) -> frozenset[int]:
        """Return the slots of the variables that ``op`` or a later operation may read.

        Resume functions get these variables.
        """
        bits = self.live[op]
        return frozenset(slot for slot in range(bits.bit_length()) if bits >> slot & 1)


def flow_of(body: Body, user: CodeType) -> Flow:
    """Return the liveness of the local variables. Sweeps from the end of the code are repeated until nothing
    changes.

    A deletion counts as a read, because ``del`` of an unbound variable raises. In code that mentions
    ``locals`` or a similar function, every call counts as a read of all variables. In code that mentions
    ``super``, every call counts as a read of the first argument.
    """
    following = successors(body)
    by_call = _read_by_calls(user)
    reads = [1 << op.arg if op.name in _READS else by_call if op.name in _CALLS else 0 for op in body.ops]
    keeps = [~(1 << op.arg) if op.name in _BINDS else -1 for op in body.ops]
    live = [0] * len(body.ops)
    changed = True
    while changed:
        changed = False
        for i in range(len(body.ops) - 1, -1, -1):
            value = 0
            for j in following[i]:
                value |= live[j]
            value = value & keeps[i] | reads[i]
            if value != live[i]:
                live[i] = value
                changed = True
    return Flow(body, dict(zip(body.ops, live, strict=True)))


def _read_by_calls(user: CodeType) -> int:
    """Return the slots that any call in ``user`` may read, as a bit set.

    These are all slots in code that mentions ``locals``, and the first slot in code that mentions ``super``.
    """
    if not FRAME_READERS.isdisjoint(user.co_names):
        return int((1 << user.co_nlocals) - 1)
    return int("super" in user.co_names and user.co_argcount > 0)


def handler_of(body: Body, op: Op) -> int | None:
    """Return the index in ``body.protected`` of the range that protects ``op``, or None."""
    index = {o: i for i, o in enumerate(body.ops)}
    where = index[op]
    for number, entry in enumerate(body.protected):
        end = len(body.ops) if entry.end is None else index[entry.end]
        if index[entry.first] <= where < end:
            return number
    return None
