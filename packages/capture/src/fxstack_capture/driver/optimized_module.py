"""A module whose calls are compiled. It shares everything else with the original module.

The wrapper is an instance of a subclass of the original's class, and its ``__dict__`` is the original's
``__dict__``. Therefore both share parameters, buffers, submodules, hooks, ``training`` and all other
attributes. The wrapper's own state is in slots.
"""

from __future__ import annotations

import copy
import pickle
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from fxstack_capture.driver.frame_policy.policy import is_fx_tracing

_PREFIX = "_orig_mod."
"""The prefix of parameter names in files that modules of ``torch.compile`` have saved."""


class OptimizedModule:
    """A mixin for a subclass of the original's class. ``_orig_mod`` is the original module."""

    __slots__ = ()

    _fxstack_original: Any
    """The original module."""
    _fxstack_call: Callable[..., Any]
    """The compiled call of the original."""
    _fxstack_class_call: Callable[..., Any]
    """The ``__call__`` that the original's class had when ``_fxstack_call`` was made."""
    _fxstack_run: Callable[[Callable[..., Any]], Callable[..., Any]]
    """The function that compiles a method of the original. It is the argument ``run`` of ``wrap``."""
    _fxstack_forward: Callable[..., Any]
    """The compiled ``forward`` of the original."""
    _fxstack_compile: Callable[[Any], Any]
    """The function that compiles another module in the same way. It is the argument ``recompile`` of
    ``wrap``.
    """

    def __init_subclass__(cls) -> None:
        """Do nothing, because the ``__init_subclass__`` of the original's class must not see the wrapper
        class.
        """

    @property
    def _orig_mod(self) -> Any:
        return self._fxstack_original

    @_orig_mod.setter
    def _orig_mod(self, module: Any) -> None:
        """Compile ``module`` in place of the original, with the same options.

        Libraries assign ``_orig_mod`` to take a model out of another wrapper. The class of this object does
        not change, so ``__getattr__`` finds the attributes that the class of ``module`` defines.
        """
        if module is self._fxstack_original:
            return
        other = self._fxstack_compile(module)
        object.__setattr__(self, "__dict__", module.__dict__)
        for slot in filter(partial(hasattr, other), _SLOTS):
            object.__setattr__(self, slot, getattr(other, slot))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute by ``__getattr__`` of the original's class. If this fails, try the class of a
        module that was assigned to ``_orig_mod``.
        """
        if name in _SLOTS:  # the slot is not set yet
            raise AttributeError(name)
        inherited: Any = super()
        try:
            return inherited.__getattr__(name)
        except AttributeError:
            original = self._fxstack_original
            if isinstance(self, type(original)):
                raise
            return getattr(original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute as the original's class does. ``_orig_mod`` does not become a submodule."""
        if name == "_orig_mod":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def dynamo_ctx(self) -> Callable[[Any], Any]:
        """The function that compiles a callable with the options of this module. Libraries compile parts of a
        model by it.
        """
        return self._fxstack_compile

    def get_compiler_config(self) -> None:
        """Return None. Torch's modules return the settings of a backend here, but backends of this package
        have none.
        """

    def __prepare_scriptable__(self) -> Any:
        """Return the module that TorchScript compiles in place of this module."""
        return self._fxstack_original

    def __call__(self, *args: object, **kwargs: object) -> Any:
        # Torch's compiler, which torch.export uses, has to inline the original.
        if is_dynamo_compiling():
            return self._fxstack_original(*args, **kwargs)
        call = type(self._fxstack_original).__call__
        if call is not self._fxstack_class_call:
            if is_fx_tracing():  # FX looks for the wrapper, not for the original, among the submodules
                return call(self, *args, **kwargs)
            _follow(self)  # the program has replaced ``__call__`` of the class or of torch.nn.Module
        return self._fxstack_call(*args, **kwargs)

    def forward(self, *args: object, **kwargs: object) -> Any:
        """Call the compiled ``forward`` of the original."""
        return self._fxstack_forward(*args, **kwargs)

    def load_state_dict(self, state_dict: dict[str, Any], *args: object, **kwargs: object) -> Any:
        """Load as the original does.

        Names as modules of torch.compile save them (``_orig_mod.weight``) are accepted as well.
        """
        if state_dict and all(name.startswith(_PREFIX) for name in state_dict):
            state_dict = copy.copy(state_dict)
            if hasattr(state_dict, "_metadata"):
                state_dict._metadata = copy.copy(state_dict._metadata)
            consume_prefix_in_state_dict_if_present(state_dict, _PREFIX)
        return self._fxstack_original.load_state_dict(state_dict, *args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._fxstack_compile(copy.deepcopy(self._fxstack_original, memo))

    def __copy__(self) -> Any:
        return self._fxstack_compile(copy.copy(self._fxstack_original))

    def __reduce_ex__(self, _protocol: object) -> Any:
        """Pickle the original, and the function that compiles it again. Compiled code is not pickled.

        The function cannot be pickled if, for example, a backend has no importable name. Unpickling then
        returns the original without compiling it.
        """
        recompile = self._fxstack_compile
        try:
            pickle.dumps(recompile)
        except (pickle.PicklingError, AttributeError, TypeError):
            recompile = _original
        return recompile, (self._fxstack_original,)


def _original(module: object) -> Any:
    """Return ``module``. A wrapper is unpickled by this function if its ``_fxstack_compile`` cannot be
    pickled.
    """
    return module


def _follow(wrapper: Any) -> None:
    """Compile the method that a call of the original runs now. The program may have replaced it."""
    original = wrapper._fxstack_original
    object.__setattr__(wrapper, "_fxstack_class_call", type(original).__call__)
    object.__setattr__(wrapper, "_fxstack_call", wrapper._fxstack_run(original.__call__))


_SLOTS = (
    *("_fxstack_original", "_fxstack_call", "_fxstack_class_call", "_fxstack_run", "_fxstack_forward"),
    *("_fxstack_compile", "__fxstack_log__"),
)


def _forward_like(cls: type) -> dict[str, Any]:
    """Return the member ``forward`` of the wrapper class, as a dictionary.

    It has the signature and globals of the original's ``forward``, because torch.export and FX read them. The
    result is empty if the ``forward`` of ``cls`` is no Python function.
    """
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
    recompile: Callable[[Any], Any],
) -> Any:
    """Return a wrapper of ``module``. ``optimize`` calls this.

    ``run`` compiles a method of the module. ``recompile`` compiles a copy of the module, or an unpickled
    module, in the same way.
    """
    cls = type(module)
    namespace = {
        "__slots__": _SLOTS,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        **_forward_like(cls),
    }
    wrapper_class = types.new_class(
        cls.__name__, (OptimizedModule, cls), exec_body=lambda ns: ns.update(namespace)
    )
    wrapper: Any = object.__new__(wrapper_class)
    object.__setattr__(wrapper, "__dict__", module.__dict__)
    object.__setattr__(wrapper, "_fxstack_original", module)
    object.__setattr__(wrapper, "_fxstack_run", run)
    _follow(wrapper)
    object.__setattr__(wrapper, "_fxstack_forward", run(module.forward))
    object.__setattr__(wrapper, "_fxstack_compile", recompile)
    return wrapper
