"""The operators of kernel launches: a mutating overload, as the program calls it, and functional overloads.

The mutating overload has its own kernel for functionalisation, which replaces it by the overload
``functional``. That overload takes the same arguments, writes to none of them, and returns the new values of
the written tensors, in order. The overload ``functional_same_0_2`` is for calls whose arguments 0 and 2 are
one tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from fxstack_interchange import torch_compat
from fxstack_interchange.operators.kernels import NAMESPACE, KernelLaunch, run, schema_arguments
from fxstack_interchange.torch_compat import OpOverload

Same = tuple[tuple[int, ...], ...]
"""Groups of argument positions. The arguments of a group are one tensor, and the kernel writes to it."""


@dataclass(frozen=True, slots=True)
class FunctionalLaunch:
    """A functional overload: copy the arguments at ``places``, then launch the kernel on the copies.

    Arguments that are one tensor (a group of ``same``) get one copy.
    """

    launch: KernelLaunch
    places: tuple[int, ...]
    same: Same

    def in_place(self, *args: object) -> Any:
        """Launch the kernel on ``args`` without copying. Return the written tensors."""
        run(self.launch, args)
        results = tuple(args[place] for place in self.places)
        return results[0] if len(results) == 1 else results


# Registrations stay for the life of the process, as torch.library's registrations do, because graphs refer to
# the operators.
_LIBRARY: Final = torch.library.Library(NAMESPACE, "FRAGMENT")
_BY_KEY: Final[dict[tuple[Any, ...], OpOverload]] = {}
_LAUNCHES: Final[dict[str, KernelLaunch]] = {}
_FUNCTIONAL: Final[dict[tuple[str, str], FunctionalLaunch]] = {}


def launch_operator(launch: KernelLaunch) -> OpOverload:
    """Return the operator of ``launch``. Define it if it does not exist yet."""
    key = launch.key
    if key not in _BY_KEY:
        _BY_KEY[key] = _define(launch)
    return _BY_KEY[key]


def functional_launch_of(target: object) -> FunctionalLaunch | None:
    """Return the launch of a functional overload; None for every other callable."""
    schema = getattr(target, "_schema", None)
    return None if schema is None else _FUNCTIONAL.get((schema.name, schema.overload_name))


def _define(launch: KernelLaunch) -> OpOverload:
    """Define the operator of one kernel launch, with its kernels for autograd and functionalisation."""
    plain = re.sub(r"\W", "_", launch.name)
    number = sum(1 for known in _LAUNCHES.values() if known.name == launch.name)
    name = f"{plain}_{number}"
    _LIBRARY.define(f"{name}({schema_arguments(launch)}) -> ()")
    _LAUNCHES[f"{NAMESPACE}::{name}"] = launch
    _implement(name, lambda *_args: None, lambda *args: run(launch, args))
    operator = _overload(name, "default")
    _LIBRARY.impl(name, _bump_versions(operator), "ADInplaceOrView", with_keyset=True)
    _LIBRARY.impl(name, _functionalize_kernel(launch, operator), "Functionalize")
    return operator


def _implement(name: str, fake: Callable[..., Any], real: Callable[..., Any]) -> None:
    """Register the fake and the real kernel of operator ``name``."""
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    _LIBRARY.impl(name, real, "CompositeExplicitAutograd")
    # Gradients do not flow through a kernel, neither here nor in eager. A program that needs gradients wraps
    # the launch in an autograd.Function.
    _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")


def _overload(name: str, overload: str) -> OpOverload:
    operator: OpOverload = getattr(getattr(getattr(torch.ops, NAMESPACE), name), overload)
    return operator


def written_places(operator: OpOverload) -> tuple[int, ...]:
    """Return the positions of the arguments that a launch writes to."""
    arguments = operator._schema.arguments
    return tuple(k for k, a in enumerate(arguments) if a.alias_info and a.alias_info.is_write)


def _bump_versions(operator: OpOverload) -> Callable[..., None]:
    """Return a kernel for ADInplaceOrView that increments the version counters of the written arguments.

    Tracers detect mutation by version counters.
    """
    places = written_places(operator)

    def bump_versions(keyset: object, *args: object) -> None:
        """Increment the versions of the written arguments, then call the kernel below."""
        for place in places:
            torch.autograd.graph.increment_version(args[place])
        with torch_compat.AutoDispatchBelowADInplaceOrView():
            operator.redispatch(keyset & torch_compat.after_ADInplaceOrView_keyset, *args)

    return bump_versions


# --- functional launches -------------------------------------------------------------------------


def functional_operator(launch: KernelLaunch, same: Same = ()) -> OpOverload:
    """Return the functional overload, which returns new values in place of writing to arguments. Define it if needed.

    The arguments of each group of ``same`` are one tensor.
    """
    mutable = launch_operator(launch)
    places = written_places(mutable)
    qualified = mutable._schema.name
    overload = "_".join(["functional", *(f"same_{'_'.join(map(str, g))}" for g in same)])
    name = qualified.removeprefix(f"{NAMESPACE}::")
    if (qualified, overload) not in _FUNCTIONAL:
        returns = "Tensor" if len(places) == 1 else f"({', '.join(['Tensor'] * len(places))})"
        arguments = schema_arguments(launch, functional=True)
        _LIBRARY.define(f"{name}.{overload}({arguments}) -> {returns}")
        fake = _run_on_copies(lambda _args: None, places, same, empty_like_strided)
        real = _run_on_copies(lambda args: run(launch, args), places, same, copy_strided)
        _implement(f"{name}.{overload}", fake, real)
        _FUNCTIONAL[qualified, overload] = FunctionalLaunch(launch, places, same)
    return _overload(name, overload)


def _run_on_copies(
    act: Callable[[list[Any]], None], places: tuple[int, ...], same: Same, duplicate: Any
) -> Callable[..., Any]:
    """Return the functional form of ``act``: it writes to copies of the arguments at ``places``, and returns them.

    ``same``: groups of places with one tensor, which get one copy. ``duplicate`` makes a copy.
    """

    def call(*args: Any) -> Any:
        """Call ``act`` with copies. Return the copies, or the only copy."""
        copies = list(args)
        for place in places:
            copies[place] = duplicate(args[place])
        for group in same:
            shared = next(copies[place] for place in group if place in places)
            for place in group:
                copies[place] = shared
        act(copies)
        results: list[Any] = []
        # Results of an operator must not share memory, so a tensor that occurs twice is duplicated.
        for place in places:
            is_duplicate = any(copies[place] is other for other in results)
            results.append(duplicate(copies[place]) if is_duplicate else copies[place])
        return results[0] if len(results) == 1 else tuple(results)

    return call


def copy_strided(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides, even if they are not dense.

    Kernels compute addresses themselves, so the strides must not change.
    """
    if not tensor.numel():
        return empty_like_strided(tensor)
    pairs = zip(tensor.size(), tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in pairs)
    memory = tensor.as_strided((extent,), (1,)).clone()
    return memory.as_strided(tensor.size(), tensor.stride(), 0)


def empty_like_strided(tensor: torch.Tensor) -> torch.Tensor:
    """Return uninitialised memory with the same sizes and strides."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _functionalize_kernel(launch: KernelLaunch, operator: OpOverload) -> Callable[..., None]:
    """Return the Functionalize kernel of the mutating overload.

    The kernel replaces the written arguments by the results of the functional overload.
    """
    places = written_places(operator)
    functionalize_key = torch_compat.DispatchKeySet(torch_compat.DispatchKey.Functionalize)

    def functionalize(*args: object) -> None:
        """Replace a launch under functionalisation by the functional operator.

        Its results become the new values of the written arguments.
        """
        plain = [_inner(value) for value in args]
        wrapped = any(_is_functional(args[place]) for place in places)
        same = _shared_arguments(args, places)
        with torch_compat.ExcludeDispatchKeyGuard(functionalize_key):
            if not wrapped:
                operator(*plain)
                return
            results = functional_operator(launch, same)(*plain)
        for place, new in zip(places, results if len(places) > 1 else (results,), strict=True):
            torch_compat.functionalize_replace(args[place], new)
            torch_compat.functionalize_commit_update(args[place])
            torch_compat.functional_sync(args[place])

    return functionalize


def _is_functional(value: object) -> bool:
    return isinstance(value, torch.Tensor) and torch_compat.is_functional_tensor(value)


def _inner(value: object) -> Any:
    """Return the tensor inside a functional tensor wrapper, with pending updates applied; other values unchanged."""
    if not _is_functional(value):
        return value
    torch_compat.functional_sync(value)
    return torch_compat.from_functional_tensor(value)


def _shared_arguments(args: Sequence[Any], places: tuple[int, ...]) -> Same:
    """Return the groups of arguments that are one tensor.

    Raises:
        NotImplementedError: a written tensor shares memory with another argument that is not the same view.
    """
    groups: dict[Any, list[int]] = {}
    storages: dict[int, set[Any]] = {}
    for position, value in enumerate(args):
        if _is_functional(value):
            storage = value.untyped_storage()._cdata
            where = (*value.size(), *value.stride(), value.storage_offset())
            geometry = (storage, value.dtype, *map(str, where))
            groups.setdefault(geometry, []).append(position)
            storages.setdefault(storage, set()).add(geometry)
    for place in places:
        if _is_functional(args[place]) and len(storages[args[place].untyped_storage()._cdata]) > 1:
            raise NotImplementedError(
                f"a Triton kernel writes to its argument {place}, which is a view of another argument's memory"
            )
    shared_groups = groups.values()
    return tuple(tuple(g) for g in shared_groups if len(g) > 1 and not set(places).isdisjoint(g))
