"""The C text of a native host program: the function around its steps, places of references, callbacks, and tables.

Inputs, new tensors, views, operands and results are loops over static tables. A C compiler takes time for each statement,
but little time for a number in a table, and the host program of a model with many layers has thousands of inputs and
results. The functions ``fx_*`` of ``host.h`` read the tables. A table names a value by a code: its position in an array
of the program, times 8, plus the number of the array (``ARRAYS``). It names a layout by its first position in the array of
all layouts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Protocol

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import DTYPE_CODES
from fxstack_inductor.codegen.host.python_host import PythonPrinter
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.codegen.repeated_lines import with_loops
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Layout
from fxstack_inductor.runtime.native import ENTRY, HEADER
from fxstack_interchange.code_writer import CodeWriter

TEMPLATE = """{header}
{before}

static FX_PLAINLY fx_object* fxstack_call(fx_object* self, fx_object* const* arguments, int64_t count) {{
  fx_object* o[{objects}] = {{0}};
  void *t[{tensors}] = {{0}}, *x[{inputs}];
  fx_places places = {{self, o, t, x, 0}};
  fx_object* result = 0;
  void* thread = 0;
  int32_t error = 0, failed = 0;
  const int profiled = fx_profiled();
{body}
  goto done;
fail:
  if (thread) fx.PyEval_RestoreThread(thread);
  fx_explain();
  fx_set(&result, 0);
done:
  for (int k = 0; k < {tensors}; k++) fx_drop(&t[k]);
  for (int k = 0; k < {objects}; k++) fx_set(&o[k], 0);
  return result;
}}

fx_object* {entry}(const fx_api* table, fx_object* state) {{
  static struct {{ const char* name; void* function; int flags; const char* text; }} method = {{
    "compiled_graph", (void*)fxstack_call, 0x80 /* METH_FASTCALL */, 0}};
  fx = *table;
  return fx.PyCFunction_NewEx(&method, state, 0);
}}
"""

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


def ascii_name(name: str) -> str:
    """Return ``name`` with underscores for all characters that a C identifier may not have."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def c_sizes(values: Iterable[Expr]) -> str:
    """Return a C array of sizes, for example ``(int64_t[]){2, n}``."""
    return f"(int64_t[]){{{', '.join(map(c_index, values)) or '0'}}}"


def empty_tensor(layout: Layout) -> str:
    """Return the C expression of a new tensor's handle."""
    sizes = f"{len(layout.shape)}, {c_sizes(layout.shape)}, {c_sizes(layout.stride)}"
    where = "0, -1" if layout.device.type == "cpu" else f"1, {layout.device.index or 0}"
    return f"fx_empty({sizes}, {DTYPE_CODES[layout.dtype]}, {where})"


def returning(parameters: Sequence[str], value: str) -> str:
    """Return the text of a Python function that returns the 1-tuple of the expression ``value``."""
    return callback(parameters, [f"    return ({value},)"])


def callback(parameters: Sequence[str], lines: Sequence[str]) -> str:
    """Return the text of a Python function; ``CText.callback`` chooses its name."""
    return "\n".join([f"({', '.join(parameters)}):", *lines]) + "\n"


@dataclass
class Tables:
    """Static tables of numbers, which functions of ``host.h`` read in loops."""

    names: dict[str, str] = field(default_factory=dict)
    """Names of the tables by their numbers; equal tables are one."""
    layouts: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Positions of layouts in the array of all layouts."""
    length: int = 0
    """The length of the array of all layouts."""

    def rows(self, rows: Sequence[Sequence[int]]) -> str:
        """Return the C expressions of a table with ``rows``, and of the number of rows, as two arguments."""
        text = ",".join(str(number) for row in rows for number in row)
        return f"{self.names.setdefault(text, f'fx_table_{len(self.names)}')}, {len(rows)}"

    def layout(self, numbers: tuple[int, ...]) -> int:
        """Return the position of ``numbers``: the number of dimensions, sizes, strides, and what a function needs besides."""
        if numbers not in self.layouts:
            self.layouts[numbers] = self.length
            self.length += len(numbers)
        return self.layouts[numbers]

    def text(self) -> str:
        """Return the declarations in C."""
        arrays = {name: text for text, name in self.names.items()}
        arrays["fx_layouts"] = ",".join(str(number) for layout in self.layouts for number in layout) or "0"
        return "\n".join(f"static const int64_t {name}[] = {{{text}}};" for name, text in arrays.items())


@dataclass
class CText(CodeWriter):
    """The lines of the function. Its places ``o[k]`` and ``t[k]`` keep objects and tensor handles alive.

    ``x[k]`` are handles of inputs, which the caller keeps alive.
    """

    INDENT = "  "

    counts: Counter[str] = field(default_factory=Counter, init=False)
    """The numbers of places and variables of each kind."""
    state: dict[str, int] = field(default_factory=dict, init=False)
    """Positions of the objects that are bound to the program, by name."""
    callbacks: dict[str, str] = field(default_factory=dict, init=False)
    """Names of Python functions by their text."""
    tables: Tables = field(default_factory=Tables, init=False)
    """The tables that the program reads in loops."""
    owned: dict[str, list[str]] = field(default_factory=dict, init=False)
    """The places that keep a variable's value, and its views, alive."""
    rare: set[str] = field(default_factory=set, init=False)
    """Places that are usually empty, and are then released without the interpreter's lock."""
    locked: bool = field(default=True, init=False)
    """Whether the program holds the interpreter's lock at the current line."""

    def function(self, before: str) -> str:
        """Return the header, ``before``, the function, and the function that binds it."""
        return TEMPLATE.format(
            header=HEADER,
            before=before,
            objects=max(self.counts["o"], 1),
            tensors=max(self.counts["t"], 1),
            inputs=max(self.counts["x"], 1),
            body="\n".join(with_loops(self.lines)),
            entry=ENTRY,
        )

    def callback_source(self) -> str:
        """Return the text of all Python functions that the C function calls."""
        return "\n".join(f"def {name}{text}" for text, name in self.callbacks.items())

    def write_profiled(self, name: str, statement: str) -> None:
        """Write ``statement``. While torch's profiler is on, it is an entry ``name`` of the profile."""
        self.line(f'{{ void* entry = profiled ? fx_begin("{name}") : 0;')
        self.line(statement)
        self.line("if (entry) fx.aoti_record_function_end(entry); }")

    def check(self, failed: str) -> None:
        """Write a jump to the error exit, taken if the C expression ``failed`` is true."""
        self.line(f"if ({failed}) goto fail;")

    def lock(self, wanted: bool) -> None:
        """Write code that acquires or releases the interpreter's lock, if necessary."""
        if wanted and not self.locked:
            self.line("fx.PyEval_RestoreThread(thread), thread = 0;")
        elif self.locked and not wanted:
            self.line("thread = fx.PyEval_SaveThread();")
        self.locked = wanted

    # --- places -----------------------------------------------------------------------------------------

    def new(self, kind: str) -> str:
        """Return a new place: ``o[k]`` for an object, ``t[k]`` for a tensor handle, ``x[k]`` for that of an input."""
        self.counts[kind] += 1
        return f"{kind}[{self.counts[kind] - 1}]"

    def variable(self, kind: str, name: str) -> str:
        """Return the name of a new C variable for the value ``name`` of the program; ``kind`` is its first letter."""
        self.counts[kind] += 1
        return f"{kind}{self.counts[kind] - 1}_{ascii_name(name)}"

    def keep_alive(self, name: str, place: str) -> None:
        """Record that ``place`` keeps the value of variable ``name`` alive until ``release``."""
        self.owned.setdefault(name, []).append(place)

    def new_rare(self, name: str) -> str:
        """Return a new place that is usually empty, and keeps a value of variable ``name`` alive if it is not."""
        place = self.new("o")
        self.rare.add(place)
        self.keep_alive(name, place)
        return place

    def release_rare(self, names: Iterable[str]) -> None:
        """Clear the rare places of tensors that nothing reads any more."""
        for name in names:
            places = self.owned.get(name, [])
            for place in [place for place in places if place in self.rare]:
                self.line(f"if ({place}) fx_release(&thread, &{place});")
                places.remove(place)

    def release(self, names: Iterable[str]) -> None:
        """Write the release of everything that keeps the values of variables ``names`` alive."""
        places = [place for name in names for place in self.owned.pop(name, ())]
        objects = [(int(place[2:-1]),) for place in places if place.startswith("o")]
        tensors = [(int(place[2:-1]),) for place in places if place.startswith("t")]
        if objects:
            self.lock(True)
            self.line(f"fx_clear(o, {self.tables.rows(objects)});")
        if tensors:
            self.line(f"fx_drops(t, {self.tables.rows(tensors)});")

    # --- Python -----------------------------------------------------------------------------------------

    def position(self, name: str) -> int:
        """Return the position of the object ``name`` in the state; a new name gets the next position."""
        return self.state.setdefault(name, len(self.state))

    def bound(self, name: str) -> str:
        """Return the C expression of the object ``name`` of the state."""
        return f"fx.PyTuple_GetItem(self, {self.position(name)})"

    def callback(self, text: str) -> str:
        """Return the name of the Python function with the text ``text``; equal texts share a function."""
        return self.callbacks.setdefault(text, f"back_{len(self.callbacks)}")

    def call(self, name: str, values: Sequence[str], place: str = "", wanted: int = 0) -> None:
        """Write the call of the object ``name`` of the state; ``wanted`` results are stored from ``place`` on."""
        arguments = f"(fx_object*[]){{{', '.join(values) or '0'}}}, {len(values)}"
        self.check(f"fx_call({self.bound(name)}, {arguments}, {f'&{place}' if wanted else '0'}, {wanted})")

    def call_again(
        self, call: str, name: str, text: str, handles: Sequence[str], *, stop: bool = False
    ) -> None:
        """Write ``call`` of operator ``name``.

        If it fails, call the Python function ``text``, and with ``stop`` fail even then.
        """
        self.write_profiled(name, f"failed = {call};")
        position = self.position(self.callback(text))
        tensors = f"(void*[]){{{', '.join(handles)}}}, {len(handles)}"
        self.check(f"failed && (fx_again(&thread, self, {position}, {tensors}) || {int(stop)})")

    def by_python(self, text: str, handle: str, symbols: Sequence[str], place: str) -> str:
        """Return the C call of the Python function ``text``: a tensor handle, which ``place`` keeps alive.

        The function gets the tensor ``handle`` (unless it is 0) and the numbers ``symbols``.
        """
        numbers = f"(int64_t[]){{{', '.join(symbols) or '0'}}}, {len(symbols)}"
        return f"fx_by_python(&thread, {self.bound(self.callback(text))}, {handle}, {numbers}, &{place})"


class TablePrinter(Protocol):
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


def write_inputs(printer: TablePrinter, names: Sequence[str]) -> None:
    """Write handles of the tensors ``names``, whose Python objects have neighbouring places."""
    first, places = printer.objects[names[0]], [printer.new("x") for _ in names]
    printer.check(f"fx_tensors(&{first}, {len(names)}, &{places[0]})")
    for name, place in zip(names, places, strict=True):
        printer.handles[name], printer.objects[name] = place, f"fx_object_of({place})"


def write_constants(printer: TablePrinter, names: Sequence[str]) -> None:
    """Write handles of the constants ``names``, which are bound to the program."""
    for (first, place), run in _neighbours(printer, names):
        for k, name in enumerate(run):
            printer.handles[name] = f"x[{place + k}]"
            printer.objects[name] = f"fx.PyTuple_GetItem(self, {first + k})"
        printer.line(f"for (int64_t k = 0; k < {len(run)}; k++) {{")
        printer.line(f"x[{place} + k] = fx_tensor(fx.PyTuple_GetItem(self, {first} + k));")
        printer.check(f"!x[{place} + k]")
        printer.line("}")


def _neighbours(
    printer: TablePrinter, names: Sequence[str]
) -> Iterator[tuple[tuple[int, int], tuple[str, ...]]]:
    """Yield constants that are neighbours in the state and in the array of handles, with their first places there."""
    places = [(printer.position(name), int(printer.new("x")[2:-1]), name) for name in names]
    for _, group in groupby(places, key=lambda place: place[0] - place[1]):
        run = list(group)
        yield run[0][:2], tuple(name for _, _, name in run)


def write_restrides(printer: TablePrinter, run: Sequence[records.Restride]) -> None:
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


def write_allocations(printer: TablePrinter, run: Sequence[records.Allocate]) -> None:
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


def _allocation(printer: TablePrinter, layout: Layout) -> int:
    """Return the position of a layout with dtype and device."""
    device = (0, -1) if layout.device.type == "cpu" else (1, layout.device.index or 0)
    numbers = _fixed(_sizes(layout))
    assert numbers is not None
    return printer.tables.layout((len(layout.shape), *numbers, DTYPE_CODES[layout.dtype], *device))


def write_views(printer: TablePrinter, values: Iterable[object]) -> None:
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


def write_operands(printer: TablePrinter, array: str, handles: Sequence[str]) -> None:
    """Write ``handles`` into the C array ``array``; an empty text is a missing handle."""
    codes = list(map(code, handles))
    printer.line(f"fx_handles(&places, {printer.tables.rows([(number,) for number in codes])}, {array});")
    for position, (handle, number) in enumerate(zip(handles, codes, strict=True)):
        if handle and number == MISSING:
            printer.line(f"{array}[{position}] = {handle};")


def write_made(printer: TablePrinter, array: str, made: Mapping[int, str]) -> None:
    """Keep the tensors at some positions of the C array ``array``; ``made`` has their names by position."""
    places = [printer.new("t") for _ in made]
    if made:
        rows = printer.tables.rows([(position,) for position in made])
        printer.check(f"fx_made({array}, {rows}, &{places[0]})")
    for name, place in zip(made.values(), places, strict=True):
        printer.handles[name] = place
        printer.keep_alive(name, place)


# --- results ------------------------------------------------------------------------------------------


def write_results(printer: TablePrinter, texts: Sequence[str]) -> None:
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
