"""A module whose calls are compiled, sharing everything else with the original.

The wrapper is an instance of a subclass of the original's class and has the very same ``__dict__``:
parameters, buffers, submodules, hooks, ``training`` and every other attribute are one and the same. What
belongs to the wrapper alone is kept in slots.
"""

from __future__ import annotations

import copy
import pickle
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

_PREFIX = "_orig_mod."


class OptimizedModule:
    """Mixed into the class of the original; ``_orig_mod`` is the original."""

    __slots__ = ()

    _fxstack_original: Any
    _fxstack_call: Callable[..., Any]
    _fxstack_forward: Callable[..., Any]
    _fxstack_again: Callable[[Any], Any]

    def __init_subclass__(cls) -> None:
        """What the original's class does with its subclasses is not meant for this one."""

    @property
    def _orig_mod(self) -> Any:
        return self._fxstack_original

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self._fxstack_call(*args, **kwargs)

    def forward(self, *args: object, **kwargs: object) -> Any:
        return self._fxstack_forward(*args, **kwargs)

    def load_state_dict(self, state_dict: dict[str, Any], *args: object, **kwargs: object) -> Any:
        """As the original's; names as torch.compile's modules save them (``_orig_mod.weight``) are understood too."""
        if state_dict and all(name.startswith(_PREFIX) for name in state_dict):
            state_dict = copy.copy(state_dict)
            if hasattr(state_dict, "_metadata"):
                state_dict._metadata = copy.copy(state_dict._metadata)
            consume_prefix_in_state_dict_if_present(state_dict, _PREFIX)
        return self._fxstack_original.load_state_dict(state_dict, *args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._fxstack_again(copy.deepcopy(self._fxstack_original, memo))

    def __copy__(self) -> Any:
        return self._fxstack_again(copy.copy(self._fxstack_original))

    def __reduce_ex__(self, _protocol: object) -> Any:
        """Pickled as the original and how it is compiled, which happens where it is loaded: compiled code does not travel.

        Where that cannot be pickled (a backend without a name of its own), the original alone comes back.
        """
        again = self._fxstack_again
        try:
            pickle.dumps(again)
        except (pickle.PicklingError, AttributeError, TypeError):
            again = _original
        return again, (self._fxstack_original,)


def _original(module: object) -> Any:
    return module


_SLOTS = ("_fxstack_original", "_fxstack_call", "_fxstack_forward", "_fxstack_again", "__fxstack_log__")


def _forward_like(cls: type) -> dict[str, Any]:
    """A ``forward`` that has the signature and the globals of the original's, which torch.export and FX look at."""
    own = getattr(cls, "forward", None)
    if not isinstance(own, types.FunctionType):
        return {}
    forward = types.FunctionType(OptimizedModule.forward.__code__, own.__globals__, own.__name__)
    forward.__qualname__, forward.__module__ = own.__qualname__, own.__module__
    forward.__doc__ = own.__doc__
    vars(forward)["__wrapped__"] = own
    return {"forward": forward}


def wrap(
    module: torch.nn.Module,
    run: Callable[[Callable[..., Any]], Callable[..., Any]],
    again: Callable[[Any], Any],
) -> Any:
    """``module`` with calls through ``run``; ``again`` optimises a copy of it, and one from a pickle, the same way."""
    cls = type(module)
    namespace = {
        "__slots__": _SLOTS,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        **_forward_like(cls),
    }
    made = types.new_class(cls.__name__, (OptimizedModule, cls), exec_body=lambda ns: ns.update(namespace))
    wrapper: Any = object.__new__(made)
    object.__setattr__(wrapper, "__dict__", module.__dict__)
    object.__setattr__(wrapper, "_fxstack_original", module)
    object.__setattr__(wrapper, "_fxstack_call", run(module.__call__))
    object.__setattr__(wrapper, "_fxstack_forward", run(module.forward))
    object.__setattr__(wrapper, "_fxstack_again", again)
    return wrapper
