"""Launches of equal kernels as a loop over a table of their tensors.

An optimizer's step launches one kernel for each parameter, and a C compiler takes a millisecond for each launch that is
written out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.native_text import HANDLE, Tables

MIN_LAUNCHES = 4
"""The number of launches from which on a loop pays."""
SLOT = re.compile(r"\(void\*\)p\[(\d+)\]")
"""The address of a tensor in the arena."""


class Printer(Protocol):
    """The printer of the program (``native.NativePrinter``)."""

    tables: Tables
    handles: dict[str, str]
    addresses: dict[str, str]
    functions: Mapping[str, str]
    error_address: str

    def line(self, text: str) -> None: ...

    def check(self, failed: str) -> None: ...

    def lock(self, wanted: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Form:
    """All that equal launches have in common: the call, and for each buffer the array of its tensor, or its address."""

    function: str
    arrays: tuple[str, ...]
    rest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One of several launches: positions in the arrays of the form, and the name of the kernel in a profile."""

    form: Form
    positions: tuple[int, ...]
    title: str


def allocations_first(steps: Iterable[records.Record], lasting: Collection[str]) -> Iterator[records.Record]:
    """Yield the records, with allocations in front of the launches between which no memory is released.

    The memory that is in use at the end of these launches stays the same. The caller keeps the tensors ``lasting`` alive.
    """

    def moves(record: records.Record) -> bool:
        if isinstance(record, records.Free):
            return all(name in lasting for name in record.names)
        return isinstance(record, (records.Allocate, records.Launch))

    for movable, group in groupby(steps, key=moves):
        run = list(group)
        yield from sorted(run, key=lambda r: not isinstance(r, records.Allocate)) if movable else run


def kind_of_run(record: records.Record) -> type:
    """Return the class of the records that are written together: launches, and the releases between them, are one kind."""
    return records.Launch if isinstance(record, records.Free) else type(record)


def write_launches(
    printer: Printer, run: Sequence[records.Launch | records.Free], write: Callable[[records.Record], None]
) -> None:
    """Write launches, and the releases between them; ``write`` writes one record."""
    waiting: list[Row] = []
    held: list[records.Launch | records.Free] = []
    for record in run:
        row = _row(printer, record) if isinstance(record, records.Launch) else None
        continues = waiting and row is not None and row.form == waiting[0].form
        if isinstance(record, records.Launch) and not continues:
            _write(printer, waiting, held, write)
            waiting, held = [], []
        if row is not None:
            waiting.append(row)
        held.append(record)
    _write(printer, waiting, held, write)


def _row(printer: Printer, record: records.Launch) -> Row | None:
    """Return a launch as a row of a table; None if a tensor of it has no place in an array."""
    kernel = record.kernel
    places = [_place(printer, buffer) for buffer in record.buffers]
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return None
    rest = (*kernel.sizes, *([printer.error_address] if kernel.checked else ()), "threads")
    form = Form(printer.functions[kernel.name], tuple(array for array, _ in known), rest)
    return Row(form, tuple(position for _, position in known), kernel.title)


def _place(printer: Printer, buffer: records.Buffer) -> tuple[str, int] | None:
    """Return the array and the position of a tensor; for the address of a number, the address and 0."""
    handle = HANDLE.fullmatch(printer.handles.get(buffer.name, ""))
    address = printer.addresses.get(buffer.name, "")
    slot = SLOT.fullmatch(address)
    if slot is not None:
        return "p", int(slot[1])
    if handle is not None:
        return handle[1], int(handle[2])
    return (address, 0) if address.startswith("&") else None


def _write(
    printer: Printer,
    rows: Sequence[Row],
    held: Iterable[records.Launch | records.Free],
    write: Callable[[records.Record], None],
) -> None:
    """Write the launches of ``rows`` as a loop, and release tensors behind it; few launches are written out."""
    if len(rows) < MIN_LAUNCHES:
        for record in held:
            write(record)
        return
    printer.lock(False)
    form, count = rows[0].form, len(rows[0].positions)
    table, _ = printer.tables.rows([row.positions for row in rows]).split(", ")
    titles = ", ".join(f'"{row.title}"' for row in rows)
    printer.line(f"{{ static const char* const titles[] = {{{titles}}};")
    printer.line(f"const int64_t* row = {table};")
    printer.line(f"for (int64_t k = 0; k < {len(rows)}; k++, row += {count}) {{")
    printer.line(f"void* d[{count}];")
    arguments = []
    for position, array in enumerate(form.arrays):
        if array == "p":
            arguments.append(f"(void*)p[row[{position}]]")
        elif array.startswith("&"):
            arguments.append(array)
        else:
            printer.check(f"fx_data({array}[row[{position}]], &d[{position}])")
            arguments.append(f"d[{position}]")
    call = f"{form.function}({', '.join([*arguments, *form.rest])});"
    printer.line("{ void* entry = profiled ? fx_begin(titles[k]) : 0;")
    printer.line(call)
    printer.line("if (entry) fx.aoti_record_function_end(entry); } } }")
    freed = tuple(name for record in held if isinstance(record, records.Free) for name in record.names)
    if freed:
        write(records.Free(freed))
