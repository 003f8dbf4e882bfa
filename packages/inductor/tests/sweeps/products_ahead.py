"""Every tile size of matrix products, compiled for sm_80 and sm_90 without a GPU: what the machine code uses.

python packages/inductor/tests/sweeps/products_ahead.py [--markdown]
"""

import os
import re
import sys
import tempfile
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
sys.path.insert(0, str(Path(__file__).parents[4] / "testing"))

import triton
from machine_code import compile_ahead, registers_and_spilled
from product_graphs import gelu, planner, product_kernels
from result_tables import Table

from fxstack_inductor.autotune.choices import config_name
from fxstack_inductor.runtime import triton_runtime
from fxstack_inductor.templates.kernels import triton_source
from fxstack_inductor.templates.product.tiling import CONFIGS


def row(kernel, config, capability, folder):
    source = triton_source([kernel], {kernel.name: config})
    module = triton_runtime.load_module(source.text, folder)
    (compiled,) = compile_ahead(source, module, capability).values()
    ptx = compiled.asm["ptx"]
    used = sorted(set(re.findall(r"wgmma|mma(?=\.sync)", ptx)))
    copies = "yes" if "cp.async" in ptx else "no"
    widths = sorted(set(re.findall(r"st\.global\.(\S+)", ptx)))
    used += map(str, registers_and_spilled(compiled))
    shared = compiled.metadata.shared / 1024
    return [config_name(config), capability, f"{shared:.0f} KiB", *used, copies, *widths]


def main():
    planned, candidates = planner(gelu, size=4096)
    (kernel,) = product_kernels(planned(candidates))
    print(f"gelu(x @ w), bfloat16, 4096x4096x4096, Triton {triton.__version__}")
    columns = (
        "sm",
        "shared memory",
        "instructions",
        "registers",
        "bytes spilled",
        "asynchronous copies",
        "stores",
    )
    table = Table("tile", *columns)
    with tempfile.TemporaryDirectory() as folder:
        for capability in (80, 90):
            for config in CONFIGS:
                table.row(*row(kernel, config, capability, Path(folder)))


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = []
        CONFIGS = CONFIGS[:1]
    main()
