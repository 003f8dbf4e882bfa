"""The C text of a native host program around its steps, and how its parts are spelled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.runtime.native import ENTRY, HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fxstack_inductor.ir.expr import Expr

TEMPLATE = """{header}
{before}

__attribute__((cold)) static fx_object* fxstack_call(fx_object* self, fx_object* const* arguments, int64_t count) {{
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


def declared(kernels: Iterable[str]) -> str:
    """What stands in front of a host program that is in one file with its kernels."""
    # A kernel that were inlined into the host program would be compiled for size, as that is.
    return "\n".join(f"extern __attribute__((noinline)) __typeof__({k}) {k};" for k in kernels)


def function(lines: Sequence[str], counts: Mapping[str, int], before: str) -> str:
    """The header, ``before``, the function with ``lines`` as its body, and what binds it."""
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
