"""Reserve eager's random numbers for dropout that generated kernels compute on a GPU.

Eager's CUDA kernel of dropout (``aten/src/ATen/native/cuda/Dropout.cu``) gives each thread a stream of the
counter-based generator Philox4x32-10. The seed and the counter of the first number come from torch's generator of
the device. Which thread draws the number of an element, and at which position of its stream, depends on the number
of elements, the device, the dtype, the address of the input and its strides. A host program calls ``Draw``, which
reserves the numbers as eager does; the kernel gets the results as arguments and computes the number of each element
(``codegen.triton.draws``). So the program's kernels and eager's kernels draw one stream.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from fxstack_inductor import torch_compat

# Limits: needs a torch whose generators have ``philox_state`` (2.15), which also serves recordings of CUDA graphs.

BLOCK = 256
"""Threads of a block of eager's kernel."""
UNROLL = 4
"""Numbers that one step of Philox gives."""
VECTOR_BYTES = 16
"""The largest number of bytes that a thread of eager's kernel loads at once."""
FIELDS = ("seed", "offset", "seed_at", "offset_at", "threads", "vector")
"""What ``Draw`` returns, in order.

``seed_at`` and ``offset_at`` are addresses of two numbers on the device, which a replay of a CUDA graph sets, and
which the kernel adds to ``seed`` and ``offset``; outside of recordings they are 0. ``threads``: threads of eager's
kernel. ``vector``: elements that a thread of eager's kernel loads at once; with 1, elements count in row-major
order, otherwise in the order of memory.
"""

_PRIVATE = threading.local()
"""The generator of ``drawing_from`` in this thread, as the attribute ``generator``."""


def has_philox_state() -> bool:
    """Whether this torch can reserve numbers of a GPU's generator for a kernel that is not its own."""
    return hasattr(torch.Generator, "philox_state")


def vector_size(numel: int, itemsize: int, address: int) -> int:
    """Return how many elements a thread of eager's kernel loads at once from a dense tensor at ``address``."""
    aligned = address & -address if address else VECTOR_BYTES
    size = max(min(VECTOR_BYTES, aligned) // itemsize, 1)
    while numel % size:
        size //= 2
    return size


@dataclass(frozen=True)
class Draw:
    """Reserves the numbers of one dropout; host programs call it, in eager's order with other random operators."""

    device: int
    """The number of the GPU."""
    itemsize: int
    """Bytes of an element."""
    dense: bool
    """Whether the elements fill their memory, in any order of the dimensions."""

    def __call__(self, numel: int, offset: int = 0, tensor: torch.Tensor | None = None) -> tuple[int, ...]:
        """Return ``FIELDS`` for an input of ``numel`` elements.

        Eager's input is ``tensor``; without ``tensor`` it lies ``offset`` elements behind the begin of aligned memory.
        """
        if numel == 0:
            return 0, 0, 0, 0, BLOCK, 1  # eager draws nothing
        threads = min(-(-numel // BLOCK) * BLOCK, device_threads(self.device))
        numbers = ((numel - 1) // (threads * UNROLL) + 1) * UNROLL
        address = offset * self.itemsize if tensor is None else tensor.data_ptr()
        vector = vector_size(numel, self.itemsize, address) if self.dense else 1
        seed, first, within = _reserve(self.device, numbers)
        if seed.is_cuda:
            return 0, within.item(), seed.data_ptr(), first.data_ptr(), threads, vector
        return seed.item(), first.item(), 0, 0, threads, vector


@lru_cache(maxsize=64)
def device_threads(device: int) -> int:
    """Return the largest number of threads of eager's kernel on GPU number ``device``."""
    properties = torch.cuda.get_device_properties(device)
    blocks = properties.max_threads_per_multi_processor // BLOCK
    return int(properties.multi_processor_count * blocks * BLOCK)


def _reserve(device: int, numbers: int) -> Any:
    """Reserve ``numbers`` for each thread: return seed, offset, and the offset within a recording, as tensors."""
    private = getattr(_PRIVATE, "generator", None)
    if private is not None:
        return private.philox_state(numbers)
    generator: Any = torch.cuda.default_generators[device]
    if torch_compat.cuda_getDevice() == device:
        return generator.philox_state(numbers)
    with torch.cuda.device(device):  # the recording that counts is that of this device's stream
        return generator.philox_state(numbers)


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Draw from ``generator`` in this thread, not from the generator of the program."""
    _PRIVATE.generator = generator
    try:
        yield
    finally:
        del _PRIVATE.generator
