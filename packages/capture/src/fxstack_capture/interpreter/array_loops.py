"""Functions that compute NumPy arrays in loops, and no tensors.

An example is a function that draws random blocks: each turn of a loop calls ``numpy.random``, which breaks the
graph. Each turn, and each caller of the function, would get its own pieces, and none has work for a compiler. If a
graph breaks in such a function, the function runs in plain Python as a whole.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType

import torch

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


def loops_over_arrays(code: CodeType, namespace: Mapping[str, object], variables: Iterable[object]) -> bool:
    """Return whether a function has a loop, names NumPy, and neither names torch nor has a tensor in ``variables``.

    ``namespace`` has the global variables of the function.
    """
    named = {_package(namespace.get(name)) for name in code.co_names}
    if "numpy" not in named or "torch" in named or not _has_loop(code):
        return False
    return not any(isinstance(value, torch.Tensor) for value in variables)


def _package(value: object) -> str:
    """Return the name of the package of a module, or of the package that defines a function, a class or an object's class."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0]
    defined = value if isinstance(value, (FunctionType, type)) else type(value)
    return str(defined.__module__).partition(".")[0]


@lru_cache(maxsize=256)
def _has_loop(code: CodeType) -> bool:
    """Return whether the code jumps backward."""
    return any(step.opcode in _JUMPS and step.argval <= step.offset for step in dis.get_instructions(code))
