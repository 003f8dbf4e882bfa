"""A graph's Triton kernels as records: text, tiling, and the types of arguments."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import torch

from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.kernel import Kernel

FLOAT8_NAMES = MappingProxyType({torch.float8_e4m3fn: "e4m3fn", torch.float8_e5m2: "e5m2"})
"""The 8-bit dtypes that kernels load and store, and their names in the prelude's functions."""

POINTERS = MappingProxyType(
    {
        torch.float64: "*fp64",
        torch.float32: "*fp32",
        torch.bfloat16: "*bf16",
        torch.float16: "*fp16",
        torch.int64: "*i64",
        torch.int32: "*i32",
        torch.int16: "*i16",
        torch.int8: "*i8",
        torch.uint8: "*u8",
        torch.bool: "*i1",
        **dict.fromkeys(FLOAT8_NAMES, "*u8"),
    }
)
"""Signature entries of kernel arguments."""


class KernelConfig(Protocol):
    """The tile sizes of a kernel.

    Each template has its own record type; kernels without template use ``tiles.Config``.
    """

    @property
    def num_warps(self) -> int: ...

    @property
    def num_stages(self) -> int:
        """The number of loads in flight."""

    @property
    def constants(self) -> dict[str, int]:
        """The constant arguments of the function, by name."""


class KernelTiling(Protocol):
    """A kernel whose loops are divided into tiles."""

    @property
    def kind(self) -> str:
        """The structure that the writer chooses, for example "looped" (``tiling.tiles``) or "product"."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def config(self) -> KernelConfig: ...

    @property
    def grid(self) -> Expr:
        """The number of Triton programs that one launch starts."""


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """``text`` defines the Triton function ``name``, which takes buffers, sizes, and constants (tile sizes)."""

    name: str
    text: str
    tiling: KernelTiling

    @property
    def kernel(self) -> Kernel:
        return self.tiling.kernel

    @property
    def config(self) -> KernelConfig:
        return self.tiling.config

    @property
    def signature(self) -> dict[str, str]:
        """Argument name -> type in Triton's notation. Tile sizes are ``constexpr``."""
        pointers = {
            f"a{k}": "i64" if ref.by_value else POINTERS[ref.dtype]
            for k, ref in enumerate(self.kernel.buffers)
        }
        sizes = dict.fromkeys(self.kernel.sizes, "i32" if self.kernel.small else "i64")
        return {**pointers, **sizes, **dict.fromkeys(self.constants, "constexpr")}

    @property
    def constants(self) -> dict[str, int]:
        return self.config.constants


@dataclass(frozen=True, slots=True)
class TritonSource:
    """The Triton module ``text`` with all kernels of a graph; ``functions`` has a function per kernel, by name."""

    text: str
    functions: dict[str, TritonKernel]
