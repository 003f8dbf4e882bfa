"""Compiled kernels store to no element that the kernel does not name: another thread may write that element."""

import dataclasses
import subprocess

import pytest
from inductor_checks import FAST

from fxstack_inductor.codegen.c.module import PRELUDE
from fxstack_inductor.runtime.toolchain import find_toolchain

BODY = """(const float* restrict a, float* restrict b, float* restrict sums, const int64_t width) {
  for (int64_t r0 = 0; r0 < 32; r0++) {
    for (int64_t r1 = 0; r1 < 16; r1++) {
      #pragma omp simd
      for (int64_t j = 0; j < width; j++) {
        const float v0 = a[r0*256 + r1*16 + j];
        sums[j] = sums[j] + v0;
        b[r0*512 + r1*32 + j] = v0;
      }
    }
  }
}
"""
"""A copy with column sums. Between two pieces of 16 floats lies one of the same length, which belongs to somebody else."""
SOURCE = f"{PRELUDE}\nFUNCTION_BEGIN\nvoid pieces{BODY}FUNCTION_END\nvoid unprotected{BODY}"


def toolchain():
    return find_toolchain(dataclasses.replace(FAST, optimization=3))


@pytest.mark.skipif("gcc" not in toolchain().path, reason="a report of GCC's")
def test_kernels_have_no_predictive_commoning(tmp_path):
    source, report = tmp_path / "pieces.c", tmp_path / "report"
    source.write_text(SOURCE)
    flags = [*toolchain().flags, f"-fdump-tree-pcom={report}", "-o", str(tmp_path / "pieces.so")]
    subprocess.run([toolchain().path, *flags, str(source)], check=True)
    text = report.read_text()
    assert "Function unprotected" in text  # the pass reports each function that it looks at
    assert "Function pieces" not in text
