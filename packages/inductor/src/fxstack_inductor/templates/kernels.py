"""Write a graph's kernels as one module of Triton source; equal kernels become one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxstack_inductor.codegen.triton import ops as triton_ops
from fxstack_inductor.codegen.triton.rows import RowsWriter
from fxstack_inductor.codegen.triton.side_by_side import side_by_side
from fxstack_inductor.codegen.triton.writer import KernelWriter
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.templates.all_templates import TEMPLATES
from fxstack_inductor.tiling.kernels import KernelConfig, TritonKernel, TritonSource
from fxstack_inductor.tiling.tiles import tile


def triton_source(
    kernels: Sequence[Kernel], configs: Mapping[str, KernelConfig] | None = None
) -> TritonSource:
    """Return the module, for the pass ``print_kernels``; ``configs``: measured tile sizes, by the kernel's name."""
    placeholder = "KERNEL"
    names: dict[object, str] = {}
    functions: dict[str, TritonKernel] = {}
    parts = [triton_ops.PRELUDE]
    for kernel in kernels:
        written = triton_kernel(kernel, placeholder, (configs or {}).get(kernel.name))
        # Kernels with equal text may differ in pointer types and in tile sizes.
        key = (written.text, tuple(written.signature.items()), written.config)
        if key not in names:
            names[key] = f"kernel_{len(names)}"
            notes = [f"# {', '.join(kernel.origins)}", *(f"# {c}" for c in kernel.comments[:8])]
            parts.append("\n".join([*notes, _named(written.text, placeholder, names[key])]))
        name = names[key]
        functions[kernel.name] = TritonKernel(name, _named(written.text, placeholder, name), written.tiling)
    return TritonSource("\n\n".join(parts) + "\n", functions)


def triton_kernel(kernel: Kernel, name: str, config: KernelConfig | None = None) -> TritonKernel:
    """Return one kernel; ``config`` gives the tile sizes of a template, if measured."""
    if kernel.template:
        return TEMPLATES[kernel.template].kernel(kernel, name, config)
    if kernel.parts:
        return side_by_side(kernel, name)
    tiling = tile(kernel)
    writer = (RowsWriter if kernel.rows else KernelWriter)(tiling)
    return TritonKernel(name, writer.function(name), tiling)


def _named(text: str, placeholder: str, name: str) -> str:
    """Return the function ``placeholder``, and the functions of its parts, under other names."""
    return text.replace(placeholder, name)
