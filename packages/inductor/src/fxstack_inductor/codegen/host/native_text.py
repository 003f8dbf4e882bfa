"""The C text of a native host program around its steps, and the C spelling of its parts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

from fxstack_inductor.codegen.dtype_codes import DTYPE_CODES
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Layout
from fxstack_inductor.runtime.native import ENTRY, HEADER

TEMPLATE = """{header}
{before}

static FX_PLAINLY fx_object* fxstack_call(fx_object* self, fx_object* const* arguments, int64_t count) {{
  fx_object* o[{objects}] = {{0}};
  void* t[{tensors}] = {{0}};
  fx_object* result = 0;
  void* thread = 0;
  int32_t error = 0;
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


def function(lines: Sequence[str], counts: Mapping[str, int], before: str) -> str:
    """Return the header, ``before``, the function with the body ``lines``, and the function that binds it."""
    return TEMPLATE.format(
        header=HEADER,
        before=before,
        objects=max(counts["o"], 1),
        tensors=max(counts["t"], 1),
        body="\n".join(lines),
        entry=ENTRY,
    )


def ascii_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def c_sizes(values: Iterable[Expr]) -> str:
    return f"(int64_t[]){{{', '.join(map(c_index, values)) or '0'}}}"


def c_double(value: float) -> str:
    return value.hex()


def names_of(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names that Python lines read, and the names that the lines leave set."""
    found: dict[type, dict[str, None]] = {ast.Load: {}, ast.Store: {}, ast.Del: {}}
    for node in ast.walk(ast.parse("\n".join(line.strip() for line in lines))):
        if isinstance(node, ast.Name):
            found[type(node.ctx)][node.id] = None
    return list(found[ast.Load]), [n for n in found[ast.Store] if n not in found[ast.Del]]


def braced(line: str) -> str:
    """Return ``line`` escaped for ``str.format``."""
    return line.replace("{", "{{").replace("}", "}}")


def empty_tensor(layout: Layout) -> str:
    """Return the C expression of a new tensor's handle."""
    sizes = f"{len(layout.shape)}, {c_sizes(layout.shape)}, {c_sizes(layout.stride)}"
    where = "0, -1" if layout.device.type == "cpu" else f"1, {layout.device.index or 0}"
    return f"fx_empty({sizes}, {DTYPE_CODES[layout.dtype]}, {where})"
