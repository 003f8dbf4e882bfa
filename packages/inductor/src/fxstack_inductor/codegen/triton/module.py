"""Write a graph's kernels as one module of Triton source; equal kernels become one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxstack_inductor.codegen.triton import ops as triton_ops
from fxstack_inductor.codegen.triton.attention import AttentionWriter
from fxstack_inductor.codegen.triton.products import ProductWriter
from fxstack_inductor.codegen.triton.writer import KernelWriter
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.tiling.attention_tiles import tile_attention
from fxstack_inductor.tiling.kernels import TritonKernel, TritonSource
from fxstack_inductor.tiling.product_tiles import ProductConfig, tile_product
from fxstack_inductor.tiling.tiles import tile


def triton_source(
    kernels: Sequence[Kernel], configs: Mapping[str, ProductConfig] | None = None
) -> TritonSource:
    """Return the module; ``configs``: measured tile sizes of matrix products, by the kernel's name."""
    placeholder = "KERNEL"
    names: dict[object, str] = {}
    functions: dict[str, TritonKernel] = {}
    parts = [triton_ops.PRELUDE]
    for kernel in kernels:
        made = triton_kernel(kernel, placeholder, (configs or {}).get(kernel.name))
        # Kernels with equal text may differ in pointer types and in tile sizes.
        key = (made.text, tuple(made.signature.items()), made.config)
        if key not in names:
            names[key] = f"kernel_{len(names)}"
            notes = [f"# {', '.join(kernel.origins)}", *(f"# {c}" for c in kernel.comments[:8])]
            parts.append("\n".join([*notes, _named(made.text, placeholder, names[key])]))
        name = names[key]
        functions[kernel.name] = TritonKernel(name, _named(made.text, placeholder, name), made.tiling)
    return TritonSource("\n\n".join(parts) + "\n", functions)


def triton_kernel(kernel: Kernel, name: str, config: ProductConfig | None = None) -> TritonKernel:
    """Return one kernel; ``config`` gives the tile sizes of a matrix product, if known."""
    if kernel.attention is not None:
        attention = tile_attention(kernel)
        return TritonKernel(name, AttentionWriter(attention).function(name), attention)
    if kernel.product is not None:
        product = tile_product(kernel, config)
        return TritonKernel(name, ProductWriter(product).function(name), product)
    tiling = tile(kernel)
    return TritonKernel(name, KernelWriter(tiling).function(name), tiling)


def _named(text: str, placeholder: str, name: str) -> str:
    return text.replace(f"def {placeholder}(", f"def {name}(", 1)
