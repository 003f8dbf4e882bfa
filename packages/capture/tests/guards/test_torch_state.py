"""Torch's global state: every piece is noticed, and recognised again."""

import contextlib

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fxstack_capture.guards.records import TorchStateIs
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS
from fxstack_capture.guards.tensor_reading import prepare_tensors
from fxstack_capture.guards.torch_state import difference, snapshot
from fxstack_capture.sources import Local


@pytest.fixture(params=["compiled", "header-free"], autouse=True)
def way(request):
    TENSOR_CHECKS.wait()
    if request.param == "compiled":
        if not TENSOR_CHECKS.compiled:
            pytest.skip(TENSOR_CHECKS.why_not or "")
        yield
        return
    prepare_tensors()
    yield
    prepare_tensors(TENSOR_CHECKS.capsule)


@contextlib.contextmanager
def setting(setter, value, old):
    setter(value)
    try:
        yield
    finally:
        setter(old)


class FunctionMode(TorchFunctionMode):
    pass


class DispatchMode(TorchDispatchMode):
    pass


@contextlib.contextmanager
def vmap_level():
    torch._C._functorch._vmap_increment_nesting(2, "error")
    try:
        yield
    finally:
        torch._C._functorch._vmap_decrement_nesting()


CHANGES = {
    "grad mode": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast on cpu": lambda: torch.autocast("cpu"),
    "autocast dtype on cpu": lambda: setting(
        lambda d: torch.set_autocast_dtype("cpu", d), torch.float16, torch.bfloat16
    ),
    "autocast on cuda": lambda: (
        torch.autocast("cuda", enabled=True)
        if torch.cuda.is_available()
        else setting(lambda e: torch.set_autocast_enabled("cuda", e), True, False)
    ),
    "autocast cache": lambda: setting(torch.set_autocast_cache_enabled, False, True),
    "default dtype": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic algorithms": lambda: setting(torch.use_deterministic_algorithms, True, False),
    "fill uninitialized memory": lambda: setting(
        torch._C._set_deterministic_fill_uninitialized_memory, False, True
    ),
    "number of threads": lambda: setting(
        torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()
    ),
    "torch function enabled": torch._C.DisableTorchFunctionSubclass,
    "torch function disabled for modes": torch._C.DisableTorchFunction,
    "torch-function modes": FunctionMode,
    "number of torch-dispatch modes": DispatchMode,
    "depth of the functorch stack": vmap_level,
    "saved-tensor hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "default device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed_and_forgiven(g, name):
    state = snapshot()
    tree = g.tree((Local("x"), TorchStateIs(state)))
    for _ in range(2):
        assert g.passes(tree, 1, None)
        with CHANGES[name]():
            assert not g.passes(tree, 1, None)
            assert difference(state, snapshot())
    assert g.passes(tree, 1, None)
    assert difference(state, snapshot()) is None


@pytest.mark.parametrize("name", CHANGES)
def test_states_other_than_the_usual_one(g, name):
    """Made within the change, a guard holds there and not outside."""
    with CHANGES[name]():
        tree = g.tree((Local("x"), TorchStateIs(snapshot())))
        assert g.passes(tree, 1, None)
        assert g.passes(tree, 1, None)
    assert not g.passes(tree, 1, None)


def test_modes_are_compared_by_identity(g):
    with FunctionMode():
        state = snapshot()
        tree = g.tree((Local("x"), TorchStateIs(state)))
        assert g.passes(tree, 1, None)
    with FunctionMode():
        assert not g.passes(tree, 1, None)
        assert "torch-function modes were" in difference(state, snapshot())


def test_functorch_depth_is_exact(g):
    with vmap_level():
        tree = g.tree((Local("x"), TorchStateIs(snapshot())))
        assert g.passes(tree, 1, None)
        with vmap_level():
            assert not g.passes(tree, 1, None)
        assert g.passes(tree, 1, None)


def test_words():
    before = snapshot()
    with torch.no_grad():
        assert difference(before, snapshot()) == "grad mode was True, is now False"
    assert before.value_of("default dtype") is torch.float32
    with pytest.raises(KeyError):
        before.value_of("no such")
