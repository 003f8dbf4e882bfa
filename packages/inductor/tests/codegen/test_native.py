"""The native host program: what the Python one does, with nothing leaked, and eager's errors."""

import ctypes
import gc
import re
import sys
import threading
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import FAST, check, check_gradients, copies, trace
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import fxstack_inductor as fi
from fxstack_inductor.codegen.host.names import DTYPE_CODES
from fxstack_inductor.codegen.host.native_calls import NEW_CALLS, shim_name
from fxstack_inductor.codegen.host.records import Call, Result, Strided, Variable
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ONE, ZERO, Var, of_atom
from fxstack_inductor.lower.program import HostCall, SymbolBinding
from fxstack_inductor.runtime.native import HEADER, has_function, native_table, torch_library

PYTHON = replace(FAST, host="python")
X, W = torch.randn(6, 8), torch.randn(8, 8)


def sliced(x, w):
    return (x[:, 1:5] @ w[2:6]).sin(), x.t(), x[1:].reshape(-1)


def several(x, w):
    values, order = (x + 1).sort(0)
    return (
        values * 2,
        order,
        torch.addmm(x, x, w, beta=0.5, alpha=2).relu(),
        torch.bmm(x[None], w[None]) + 1,
        *(x + 2).topk(3),
    )


def updated(x, w):
    x.copy_(x @ w)
    return (x + 1).sum(), w


def gathered(x, w):
    return x[w[0].abs().long() % 6] * 2, x.new_zeros(3), 5, None


def sized(x, w):
    return (x @ w).sin() * x.shape[0], x.shape[0] + 1, x.new_ones(x.shape[0], 2).sum(0)


PROGRAMS = (sliced, several, updated, gathered)


@pytest.mark.parametrize("fn", PROGRAMS)
def test_it_computes_what_eager_does(fn):
    assert check(fn, X, W).lowered.program.native


@pytest.mark.parametrize("fn", PROGRAMS)
def test_the_python_program_does_too(fn):
    assert not check(fn, X, W, options=PYTHON).lowered.program.native


@pytest.mark.parametrize("options", [FAST, PYTHON])
def test_sizes_are_symbols(options):
    others = [(torch.randn(3, 8), W), (torch.randn(1000, 8), W)]
    check(sized, X, W, symbolic=True, options=options, others=others)


def test_inputs_with_other_strides_are_copied():
    compiled = check(several, X, W)
    for got, want in zip(compiled(X.t().contiguous().t(), W), compiled(X, W)):
        assert torch.equal(got, want)


def references(compiled, *inputs):
    compiled(*inputs)
    before = [sys.getrefcount(x) for x in inputs]
    compiled(*inputs)
    after = [sys.getrefcount(x) for x in inputs]
    return [b - a for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize("fn", PROGRAMS)
def test_no_reference_to_an_input_is_left(fn):
    inputs = copies([X, W])
    assert references(fi.compile_graph(trace(fn, *inputs), inputs, FAST), *inputs) == [0, 0]


@pytest.mark.parametrize("fn", PROGRAMS)
def test_no_tensor_is_left(fn):
    compiled = fi.compile_graph(trace(fn, *copies([X, W])), (), FAST)
    inputs = copies([X, W])
    compiled(*inputs)
    gc.collect()
    before = alive()
    for _ in range(5):
        compiled(*inputs)
    assert alive() == before


def alive():
    return sum(isinstance(x, torch.Tensor) for x in gc.get_objects())


def test_an_index_out_of_range_is_eagers_error():
    compiled = fi.compile_graph(trace(lambda x, i: x[i] * 2, X, torch.tensor([1])), (), FAST)
    with pytest.raises(IndexError, match="index 6 is out of bounds for dimension 0 with size 6"):
        compiled(X, torch.tensor([6]))
    assert torch.equal(compiled(X, torch.tensor([5]))[0], X[[5]] * 2)


def test_an_error_in_a_call_is_the_callees():
    compiled = fi.compile_graph(trace(lambda x: torch.linalg.inv(x + 0) * 2, W), (), FAST)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        compiled(torch.zeros(8, 8))
    torch.testing.assert_close(compiled(torch.eye(8))[0], torch.eye(8) * 2)


def test_a_call_that_the_shim_refuses_raises_what_eager_raises(capfd):
    graph = trace(lambda x, w: (x @ w).sin(), X, W)
    compiled = fi.compile_graph(graph, (), FAST, check_arguments=False)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied|size mismatch"):
        compiled(X, torch.randn(3, 8))
    torch.testing.assert_close(compiled(X, W)[0], (X @ W).sin())
    capfd.readouterr()


@pytest.mark.parametrize("arguments", [(X,), (X, 3), (X, None), (X, W, W)])
def test_other_arguments_are_a_type_error(arguments):
    compiled = fi.compile_graph(trace(sliced, X, W), (), FAST)
    with pytest.raises(TypeError, match="a compiled graph"):
        compiled(*arguments)


@pytest.mark.parametrize("options", [FAST, PYTHON])
def test_a_boxed_call_frees_its_inputs_early(options):
    seen = []

    def fn(x, y):
        return (torch.sort(x.sin() * 2)[0] + 1).sort(0)[0] * y

    graph = trace(fn, *copies([X, X]))
    compiled = fi.compile_graph(graph, (), options, boxed=True)
    inputs = copies([X, X])
    watched = [torch._C._WeakTensorRef(x) for x in inputs]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append([ref.expired() for ref in watched])
            return func(*args, **(kwargs or {}))

    expected = fn(*inputs)
    assert compiled.boxed
    with Watch():
        (result,) = compiled(inputs)
    assert not inputs
    torch.testing.assert_close(result, expected)
    assert [True, False] in seen


def scaled(x, w):
    product = torch.baddbmm(w[None], w[None], w[None], beta=2**60 + 1, alpha=2**62 + 3)
    return product + x[0], torch.addmm(w, w, w, beta=2**60 + 1, alpha=-(2**58) - 1)


@pytest.mark.parametrize("options", [FAST, PYTHON])
def test_scales_that_are_no_floats_are_exact(options):
    check(scaled, *(torch.arange(x.numel()).view(x.shape) for x in (X, W)), options=options)


def test_threads_run_it_at_once():
    compiled = fi.compile_graph(trace(several, X, W), (), FAST)
    expected = compiled(X, W)
    wrong = []

    def work():
        for _ in range(200):
            if not all(map(torch.equal, compiled(X, W), expected)):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("dtype", DTYPE_CODES)
def test_dtypes_have_torchs_numbers(dtype):
    own = torch.empty(0, dtype=dtype)
    assert torch.ops.aten.empty.memory_format([0], dtype=dtype).dtype == own.dtype
    assert DTYPE_CODES[dtype] == shim_dtype(own)


def shim_dtype(tensor):
    found = ctypes.c_int32()
    handle = ctypes.c_void_p(id(tensor) + native_table().offset)
    torch_library("aoti_torch_get_dtype").aoti_torch_get_dtype(handle, ctypes.byref(found))
    return found.value


def test_names_that_a_call_reads_and_sets():
    size = of_atom(Var("s0", VarKind.INTEGER))
    view = Strided("v", "b", (size,), (ONE,), ZERO, relative=True)
    step = HostCall("a", max, (), {})
    results = (Result("c", (0,), "tensor"), Result("d", (1,), "object"))
    bindings = (SymbolBinding("u0", "c", 0),)
    call = Call(step, max, ([view, Variable("x")], 3), {"k": Variable("b")}, results, "a", bindings=bindings)
    assert call.reads == ["b", "s0", "x"]
    assert call.sets == {"c": "tensor", "d": "object", "u0": "integer"}


IMAGE, FILTER, BIAS = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
HEADS = torch.randn(1, 2, 16, 8)


def convolved(x, w, b):
    return F.conv2d(x, w, b, padding=1, stride=2).relu()


def attended(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3).sin()


def attended_with_mask(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(16, 16).tril()).sin()


SHIMMED = [
    (convolved, (IMAGE, FILTER, BIAS), "convolution("),
    (lambda x, w: convolved(x, w, None), (IMAGE, FILTER), "convolution("),
    (attended, (HEADS, HEADS + 1, HEADS * 2), "for_cpu("),
    (attended_with_mask, (HEADS, HEADS + 1, HEADS * 2), "for_cpu("),
]


@pytest.mark.parametrize(("fn", "inputs", "call"), SHIMMED)
def test_calls_that_go_through_the_shim(fn, inputs, call):
    assert f"fx.aoti_torch_cpu_{call}" in shimmed(check(fn, *inputs))


@pytest.mark.parametrize(("fn", "inputs", "call"), SHIMMED)
def test_their_backwards_do_too(fn, inputs, call):
    assert call.replace("(", "_backward(") in shimmed(check_gradients(fn, *inputs))


@pytest.mark.parametrize("call", NEW_CALLS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_calls_are_only_of_functions_that_the_table_has(call, device):
    name = shim_name(NEW_CALLS[call], device)
    assert has_function(name) <= (f", {name}," in HEADER)


def shimmed(compiled):
    return compiled.lowered.text.replace("_scaled_dot_product_flash_attention_", "")


def powers(x, w):
    for _ in range(5):
        x = x @ w
    return x


def test_a_graph_of_calls_alone_is_native_too():
    assert check(powers, X, W).lowered.program.native


def test_but_needs_no_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert not check(powers, X, W).lowered.program.native


def test_a_refused_call_that_makes_tensors_raises_what_eager_raises(capfd):
    compiled = fi.compile_graph(trace(convolved, IMAGE, FILTER, BIAS), (), FAST, check_arguments=False)
    with pytest.raises(RuntimeError, match="expected input.* to have 5 channels"):
        compiled(IMAGE, torch.randn(4, 5, 3, 3), BIAS)
    capfd.readouterr()


def test_a_fake_tensor_is_refused():
    compiled = fi.compile_graph(trace(lambda x: x.sin() + 1, X), (), FAST)
    with FakeTensorMode() as mode, pytest.raises(RuntimeError, match="without data|data pointer"):
        compiled(mode.from_tensor(X))


def counted(x, w):
    return x + 1, x.shape[0] ** 2, x.shape[0] * 2 // 3, x.shape[0] - 1, w


@pytest.mark.parametrize("options", [FAST, PYTHON])
def test_integers_have_no_largest_one(options):
    check(counted, X, W, symbolic=True, options=options, others=[(X[:3], W)])
    graph = trace(counted, X, W, symbolic=True)
    compiled = fi.compile_graph(graph, (), options, check_arguments=False)
    assert compiled(torch.ones(2**40, 0), W)[1:4] == (2**80, 2**41 // 3, 2**40 - 1)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape", [(8,), (), (2, 6, 8)])
def test_a_tensor_of_another_rank_is_refused(shape, symbolic):
    compiled = fi.compile_graph(trace(sliced, X, W, symbolic=symbolic), (), FAST)
    with pytest.raises((TypeError, ValueError), match="compile it for"):
        compiled(torch.ones(shape), W)


@pytest.mark.parametrize("fn", [lambda x: x.sin() + 1, lambda x: (x.t(), x * 2)])
def test_a_tensor_of_another_size_is_refused(fn):
    compiled = fi.compile_graph(trace(fn, X), (), FAST)
    with pytest.raises(ValueError, match=r"must be float32\[6, 8\] on cpu, but it is float32\[2, 8\]"):
        compiled(X[:2])


@pytest.fixture
def fresh_table():
    native_table.cache_clear()
    yield
    native_table.cache_clear()


@pytest.mark.usefixtures("fresh_table")
@pytest.mark.parametrize(
    ("name", "replacement", "reason"),
    [
        ("tensor_offset", lambda: None, "do not have the expected layout"),
        ("_address", lambda _name: 0, "has no Py.*aoti_torch_get_sizes"),
    ],
)
def test_on_another_torch_the_program_is_python(monkeypatch, name, replacement, reason):
    monkeypatch.setattr(f"fxstack_inductor.runtime.native.{name}", replacement)
    assert re.search(reason, native_table().reason)
    assert not check(sliced, X, W).lowered.program.native
