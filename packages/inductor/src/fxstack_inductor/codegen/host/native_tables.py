"""Parts of a native host program as loops over static tables: inputs, new tensors, views, operands and results.

A C compiler takes time for each statement, but little time for a number in a table. The host program of a model with
many layers has thousands of inputs and results. The functions ``fx_*`` of ``host.h`` read the tables.

A table names a value by a code: its position in an array of the program, times 8, plus the number of the array
(``ARRAYS``). It names a layout by its first position in the array of all layouts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Protocol

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import DTYPE_CODES
from fxstack_inductor.codegen.host.native_text import Tables, returning
from fxstack_inductor.codegen.host.python_host import PythonPrinter
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Layout

ARRAYS: Mapping[str, int] = MappingProxyType({"t": 0, "x": 1, "w": 2, "o": 3, "self": 4})
"""Numbers of the arrays in codes: tensors of the program, inputs, tensors in the arena, objects, the state."""
MISSING = -1
"""The code of no value."""
HANDLE = re.compile(r"([txw])\[(\d+)\]")
RESULTS = re.compile(
    r"fx\.wrap_tensor\((t)\[(\d+)\]\)|fx_kept\(fx_object_of\(([xw])\[(\d+)\]\)\)"
    r"|fx_kept\((o)\[(\d+)\]\)|fx_kept\(fx\.PyTuple_GetItem\((self), (\d+)\)\)"
)
"""The C texts of new references to results that have codes."""


class Printer(Protocol):
    """The printer of the program (``native.NativePrinter``)."""

    tables: Tables
    handles: dict[str, str]
    objects: dict[str, str]
    views: dict[records.Strided, str]
    python: PythonPrinter

    def line(self, text: str) -> None: ...

    def check(self, failed: str) -> None: ...

    def new(self, kind: str) -> str: ...

    def keep_alive(self, name: str, place: str) -> None: ...

    def callback(self, text: str) -> str: ...

    def position(self, name: str) -> int: ...

    def restride(self, record: records.Restride) -> None: ...

    def allocate(self, record: records.Allocate) -> None: ...


def code(handle: str) -> int:
    """Return the code of a C expression of a tensor handle; ``MISSING`` if it has none."""
    match = HANDLE.fullmatch(handle)
    return MISSING if match is None else ARRAYS[match[1]] + 8 * int(match[2])


def _fixed(values: Iterable[Expr]) -> tuple[int, ...] | None:
    """Return sizes as numbers; None if one is symbolic."""
    numbers = [value.as_int() for value in values]
    known = [number for number in numbers if number is not None]
    return tuple(known) if len(known) == len(numbers) else None


# --- inputs -------------------------------------------------------------------------------------------


def write_inputs(printer: Printer, names: Sequence[str]) -> None:
    """Write handles of the tensors ``names``, whose Python objects have neighbouring places."""
    first, places = printer.objects[names[0]], [printer.new("x") for _ in names]
    printer.check(f"fx_tensors(&{first}, {len(names)}, &{places[0]})")
    for name, place in zip(names, places, strict=True):
        printer.handles[name], printer.objects[name] = place, f"fx_object_of({place})"


def write_restrides(printer: Printer, run: Sequence[records.Restride]) -> None:
    """Write the checks of inputs' strides; Python copies an input with other strides."""
    rows: list[tuple[int, ...]] = []
    for record in run:
        numbers = _fixed((*record.shape, *record.stride))
        at = HANDLE.fullmatch(printer.handles[record.name])
        if numbers is None or at is None or at[1] != "x":
            printer.restride(record)
            continue
        place = printer.new("o")
        printer.keep_alive(record.name, place)
        text = returning(["x"], printer.python.restride("x", record))
        layout = printer.tables.layout((len(record.shape), *numbers))
        rows.append((int(at[2]), layout, int(place[2:-1]), printer.position(printer.callback(text))))
    if rows:
        printer.check(f"fx_restrides(&places, fx_layouts, {printer.tables.rows(rows)})")


# --- tensors ------------------------------------------------------------------------------------------


def write_allocations(printer: Printer, run: Sequence[records.Allocate]) -> None:
    """Write the allocations of tensors outside of the arena; those with symbolic sizes one by one."""
    for fixed, group in groupby(run, key=lambda record: _fixed(_sizes(record.layout)) is not None):
        if not fixed:
            for record in group:
                printer.allocate(record)
            continue
        rows, places = [], []
        for record in group:
            places.append(place := printer.new("t"))
            rows.append((_allocation(printer, record.layout),))
            printer.handles[record.name] = place
            printer.keep_alive(record.name, place)
        printer.check(f"fx_empties(fx_layouts, {printer.tables.rows(rows)}, &{places[0]})")


def _sizes(layout: Layout) -> tuple[Expr, ...]:
    """Return the sizes and strides of ``layout``."""
    return (*layout.shape, *layout.stride)


def _allocation(printer: Printer, layout: Layout) -> int:
    """Return the position of a layout with dtype and device."""
    device = (0, -1) if layout.device.type == "cpu" else (1, layout.device.index or 0)
    numbers = _fixed(_sizes(layout))
    assert numbers is not None
    return printer.tables.layout((len(layout.shape), *numbers, DTYPE_CODES[layout.dtype], *device))


def write_views(printer: Printer, values: Iterable[object]) -> None:
    """Write the views among ``values`` that do not exist yet, if their sizes are numbers and their bases have codes."""
    rows, places = [], []
    for view in values:
        if not isinstance(view, records.Strided) or view in printer.views:
            continue
        numbers = _fixed((*view.shape, *view.stride, view.offset))
        base = code(printer.handles[view.base])
        if numbers is None or base == MISSING:
            continue
        places.append(place := printer.new("t"))
        printer.views[view] = place
        printer.keep_alive(view.base, place)
        rows.append((base, printer.tables.layout((len(view.shape), *numbers))))
    if rows:
        printer.check(f"fx_views(&places, fx_layouts, {printer.tables.rows(rows)}, &{places[0]})")


def write_operands(printer: Printer, array: str, handles: Sequence[str]) -> None:
    """Write ``handles`` into the C array ``array``; an empty text is a missing handle."""
    codes = list(map(code, handles))
    printer.line(f"fx_handles(&places, {printer.tables.rows([(number,) for number in codes])}, {array});")
    for position, (handle, number) in enumerate(zip(handles, codes, strict=True)):
        if handle and number == MISSING:
            printer.line(f"{array}[{position}] = {handle};")


def write_made(printer: Printer, array: str, made: Mapping[int, str]) -> None:
    """Keep the tensors at some positions of the C array ``array``; ``made`` has their names by position."""
    places = [printer.new("t") for _ in made]
    if made:
        rows = printer.tables.rows([(position,) for position in made])
        printer.check(f"fx_made({array}, {rows}, &{places[0]})")
    for name, place in zip(made.values(), places, strict=True):
        printer.handles[name] = place
        printer.keep_alive(name, place)


# --- results ------------------------------------------------------------------------------------------


def write_results(printer: Printer, texts: Sequence[str]) -> None:
    """Write the results, C expressions of new references, into the program's tuple ``result``."""
    position = 0
    for coded, group in groupby(texts, key=lambda text: RESULTS.fullmatch(text) is not None):
        run = list(group)
        if coded:
            rows = printer.tables.rows([(_result_code(text),) for text in run])
            printer.check(f"fx_results(&places, result, {position}, {rows})")
        else:
            for k, text in enumerate(run, position):
                printer.check(f"fx_put(result, {k}, {text})")
        position += len(run)


def _result_code(text: str) -> int:
    """Return the code of a result that matches ``RESULTS``."""
    match = RESULTS.fullmatch(text)
    assert match is not None
    array, position = (group for group in match.groups() if group is not None)
    return ARRAYS[array] + 8 * int(position)
