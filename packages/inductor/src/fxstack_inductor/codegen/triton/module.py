"""Write a graph's kernels as one module of Triton source; equal kernels become one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fxstack_inductor.codegen.triton import ops as triton_ops
from fxstack_inductor.codegen.triton.attention import AttentionWriter
from fxstack_inductor.codegen.triton.attention_tiles import AttentionConfig, AttentionTiling, tile_attention
from fxstack_inductor.codegen.triton.product_tiles import ProductConfig, ProductTiling, tile_product
from fxstack_inductor.codegen.triton.products import ProductWriter
from fxstack_inductor.codegen.triton.tiles import Config, Tiling, tile
from fxstack_inductor.codegen.triton.writer import KernelWriter
from fxstack_inductor.ir.kernel import Kernel


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """``text`` defines the function ``name``; arguments: pointers, sizes, and (constant) tile sizes."""

    name: str
    text: str
    tiling: Tiling | ProductTiling | AttentionTiling

    @property
    def kernel(self) -> Kernel:
        return self.tiling.kernel

    @property
    def config(self) -> Config | ProductConfig | AttentionConfig:
        return self.tiling.config

    @property
    def signature(self) -> dict[str, str]:
        """Argument types in Triton's notation; tile sizes are ``constexpr``."""
        pointers = {
            f"a{k}": "i64" if ref.by_value else triton_ops.POINTERS[ref.dtype]
            for k, ref in enumerate(self.kernel.buffers)
        }
        sizes = dict.fromkeys(self.kernel.sizes, "i32" if self.kernel.small else "i64")
        return {**pointers, **sizes, **dict.fromkeys(self.constants, "constexpr")}

    @property
    def constants(self) -> dict[str, int]:
        return self.config.constants


@dataclass(frozen=True, slots=True)
class TritonSource:
    """One module with all kernels of a graph. ``functions`` maps kernel names to functions."""

    text: str
    functions: dict[str, TritonKernel]


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
