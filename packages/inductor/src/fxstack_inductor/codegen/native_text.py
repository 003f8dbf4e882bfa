"""The C text of a native host program around its steps, and how its parts are spelled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.runtime.native import ENTRY, HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fxstack_inductor.ir.expr import Expr

DTYPE_CODES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.float8_e5m2fnuz: 25,
    torch.float8_e4m3fnuz: 26,
    torch.float8_e8m0fnu: 44,
}
"""c10::ScalarType's numbers, which are part of torch's ABI."""

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
