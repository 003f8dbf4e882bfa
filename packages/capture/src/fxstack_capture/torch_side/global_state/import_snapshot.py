"""The contents of torch's modules and of ``torch.Tensor`` when this package was imported.

The tracer records a torch operator written in Python as one node. The caches of compiled programs use
operator names as keys. Both are correct only if the names, the code and the defaults are torch's own. If the
program has replaced a function, the interpreter traces it like any other function, or the graph breaks.
"""

from __future__ import annotations

from types import FunctionType, ModuleType

import torch

from fxstack_capture import torch_compat
from fxstack_capture.trace.late_guards.stable_modules import is_stable

_MODULES = (
    *(torch, torch.nn.functional, torch.functional, torch_compat.tensor_module, torch.sparse),
    *(torch.signal.windows.windows, torch_compat.lobpcg, torch_compat.lowrank, torch_compat.C),
    *(m for m in vars(torch_compat.C).values() if isinstance(m, ModuleType)),
)
_NAMESPACES = {id(vars(module)): (vars(module), dict(vars(module))) for module in _MODULES}
_TENSOR = dict(torch.Tensor.__dict__)


def _is_foreign(name: str, value: object) -> bool:
    """Return whether the attribute of ``torch.Tensor`` was defined outside of torch."""
    if isinstance(value, property):
        return hasattr(torch_compat.TensorBase, name) and not is_stable(value.fget)
    return isinstance(value, FunctionType) and not is_stable(value)


_FOREIGN = frozenset(name for name, value in _TENSOR.items() if _is_foreign(name, value))
"""Names on ``torch.Tensor`` that another package had already replaced before this package was imported."""

_FUNCTIONS = {
    value: (value.__code__, value.__defaults__, value.__kwdefaults__)
    for held in (*(names for _, names in _NAMESPACES.values()), _TENSOR)
    for value in held.values()
    if isinstance(value, FunctionType)
}


def is_original(namespace: dict[str, object], name: str, value: object) -> bool:
    """Return whether ``value`` is the object that torch itself has defined as ``name`` in ``namespace``."""
    if isinstance(value, FunctionType) and not is_unchanged(value):
        return False
    _, names = _NAMESPACES.get(id(namespace), (None, {}))
    # A name that is not in the snapshot counts as original if a stable module defines the value.
    return names[name] is value if name in names else is_stable(value)


def torchs_own(name: str, otherwise: object) -> object:
    """Return the value of ``name`` in the module ``torch`` at the snapshot. If it was missing, return
    ``otherwise``.
    """
    return _NAMESPACES[id(vars(torch))][1].get(name, otherwise)


def is_unchanged(fn: FunctionType) -> bool:
    """Return whether a function has the same code and defaults as in the snapshot."""
    parts = _FUNCTIONS.get(fn)
    if parts is None:
        return True
    return fn.__code__ is parts[0] and fn.__defaults__ is parts[1] and fn.__kwdefaults__ is parts[2]


def is_original_method(name: str) -> bool:
    """Return whether ``torch.Tensor.name`` is torch's own method, or a method that the program has added."""
    value = torch.Tensor.__dict__.get(name)
    if value is not _TENSOR.get(name):
        return name not in _TENSOR and not hasattr(torch_compat.TensorBase, name)
    return name not in _FOREIGN and (type(value) is not FunctionType or is_unchanged(value))
