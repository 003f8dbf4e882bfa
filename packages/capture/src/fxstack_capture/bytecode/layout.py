"""Make code objects from a user's operations, with other arguments, locals and free variables."""

from __future__ import annotations

import dis
from dataclasses import dataclass
from types import CodeType

from fxstack_capture.bytecode.arguments import STARRED
from fxstack_capture.bytecode.assemble import Assembled, Body, Op, write

_CELL_OPS = frozenset(dis.opname[op] for op in dis.hasfree)
_SLOT_OPS = _CELL_OPS | {dis.opname[op] for op in dis.haslocal}


@dataclass(frozen=True, slots=True)
class Layout:
    """The "locals plus" of a code object: ``arguments``, then other ``local`` variables, then free variables."""

    arguments: tuple[str, ...]
    local: tuple[str, ...]
    free: tuple[str, ...]

    def slot(self, name: str) -> int:
        """Return the slot of the variable ``name`` in the "locals plus"."""
        return (*self.arguments, *self.local, *self.free).index(name)


def uses_cell(op: Op) -> bool:
    """Return whether the argument of ``op`` is the slot of a cell or free variable."""
    return op.name in _CELL_OPS


def move(body: Body, names: tuple[str, ...], layout: Layout) -> None:
    """Change the slot of each operation on a variable.

    ``names`` are the names of the variables by old slot. ``layout`` has the new slots.
    """
    slots = {name: layout.slot(name) for name in names}
    for op in body.ops:
        if op.name in _SLOT_OPS:
            op.arg = slots[names[op.arg]]


def prologue(layout: Layout, *, is_generator: bool = False) -> list[Op]:
    """Return the first operations of a function with this layout: free variables, generator, RESUME."""
    copy = [Op("COPY_FREE_VARS", len(layout.free))] if layout.free else []
    generator = [Op("RETURN_GENERATOR"), Op("POP_TOP")] if is_generator else []
    return [*copy, *generator, Op("RESUME", 0)]


def assemble(
    code: CodeType, body: Body, layout: Layout, stack: int, constants: tuple[object, ...] = ()
) -> tuple[CodeType, Assembled]:
    """Return a code object with the operations of ``body``. Name, file and constants are those of ``code``.

    ``constants`` are additional constants. They come after the constants of ``code``.
    """
    assembled = write(body, code.co_firstlineno)
    return code.replace(
        co_code=assembled.code,
        co_linetable=assembled.linetable,
        co_exceptiontable=assembled.exceptiontable,
        co_argcount=len(layout.arguments),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_nlocals=len(layout.arguments) + len(layout.local),
        co_varnames=(*layout.arguments, *layout.local),
        co_cellvars=(),
        co_freevars=layout.free,
        co_flags=code.co_flags & ~STARRED,
        co_stacksize=stack,
        co_consts=(*code.co_consts, *constants),
    ), assembled
