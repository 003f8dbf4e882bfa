"""The C text of a native host program: the function around its steps, places of references, and callbacks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fxstack_inductor.codegen.host.names import DTYPE_CODES
from fxstack_inductor.codegen.index_text import c_index
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
            body="\n".join(self.lines),
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
