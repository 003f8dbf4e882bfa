"""The native host program on CUDA: graphs of CPU tensors, launches recorded by a driver that is not one."""

import gc
import re
import struct

import pytest
import torch
from fake_cuda import FakeCuda
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, decompositions
from fxstack_inductor.codegen.host.native_device import BEFORE, native_device_program
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.errors import CudaError
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Var, extremum, floordiv, integer, mod, of_atom
from fxstack_inductor.lower.host.numbers import tensor_bits
from fxstack_inductor.runtime.cubins import Cubin
from fxstack_inductor.runtime.native import Refused, native_table
from fxstack_inductor.targets.triton.load import load_native
from fxstack_inductor.targets.triton.lower import lower_triton

S = of_atom(Var("s0", VarKind.INTEGER))
pytestmark = pytest.mark.skipif(isinstance(native_table(), Refused), reason="host programs are Python here")


def machine_code(source, _capability, _options):
    """What stands for the compiled kernels: two parameters more than they are given, as Triton's have."""
    return {
        k.name: Cubin(k.name, b"\x7fELF", len(k.signature) - len(k.constants) + 2, 128, 0, 0)
        for k in source.functions.values()
    }


class Native:
    """``fn`` for CPU tensors like ``inputs`` through the program that CUDA gets; its kernels do nothing."""

    def __init__(self, folder, fn, *inputs, mode="fake", boxed=False):
        self.cuda = FakeCuda(folder, params=4)
        graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode=mode)(*inputs)
        options = InductorOptions(cache_dir=folder, optimization=1)
        with pytest.MonkeyPatch.context() as patch:
            for limit in ("SMALL", "MOST_OF_PARTS"):  # a launch for each kernel
                patch.setattr(f"fxstack_inductor.schedule.side_by_side.{limit}", 0)
            self.lowered = lower_triton(graph, options, boxed=boxed)
            patch.setattr("fxstack_inductor.targets.triton.load.load_cubins", machine_code)
            self.call = load_native(self.lowered, options, self.cuda.driver, {0: 90})


def three(x, y, z):
    return x + 1, (y * y).sum(1), z.relu()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    inputs = (torch.randn(4096), torch.randn(64, 64), torch.randn(4, 64))
    return Native(tmp_path_factory.mktemp("cuda"), three, *inputs)


def test_launches_carry_grids_and_addresses(program):
    x, y, z = torch.randn(4096), torch.randn(64, 64), torch.randn(4, 64)
    program.cuda.number("fake_count").value = 0
    results = program.call(x, y, z)
    points, rows, flat = program.cuda.calls
    assert points.params[:2] == [x.data_ptr(), results[0].data_ptr()]
    assert rows.params[:2] == [y.data_ptr(), results[1].data_ptr()]
    assert (flat.grid, flat.threads, flat.params[0]) == (2, 128, z.data_ptr())
    assert [tuple(r.shape) for r in results] == [(4096,), (64,), (4, 64)]


def test_a_slice_that_is_not_aligned_is_read_from_a_copy(program):
    x = torch.randn(4097)[1:]
    program.cuda.number("fake_count").value = 0
    program.call(x, torch.randn(64, 64), torch.randn(4, 64))
    assert program.cuda.calls[0].params[0] not in {0, x.data_ptr()}
    assert program.cuda.calls[0].params[0] % 16 == 0


def test_an_input_with_other_strides_is_copied(program):
    y = torch.randn(64, 64).t()
    program.cuda.number("fake_count").value = 0
    program.call(torch.randn(4096), y, torch.randn(4, 64))
    assert program.cuda.calls[1].params[0] != y.data_ptr()


def test_a_refused_launch_raises_the_drivers_words(program):
    program.cuda.number("fake_status").value = 1
    try:
        with pytest.raises(CudaError, match=r"invalid argument \(CUDA error 1\)"):
            program.call(torch.randn(4096), torch.randn(64, 64), torch.randn(4, 64))
    finally:
        program.cuda.number("fake_status").value = 0


def test_what_is_no_tensor_is_refused(program):
    with pytest.raises(TypeError, match="takes 3 inputs, not 2"):
        program.call(torch.randn(4096), torch.randn(64, 64))


def update(x):
    torch.ops.aten.copy_.default(x, x + 1)
    return x * 2


@pytest.mark.parametrize("offset", [0, 1])
def test_what_is_written_to_an_aligned_copy_is_copied_back(tmp_path, offset, monkeypatch):
    """The kernels do nothing: the copy is made to hold something else."""
    made = torch.zeros(8)
    monkeypatch.setattr("fxstack_inductor.codegen.host.native_device.aligned", lambda _tensor: made)
    x = torch.ones(8 + offset)[offset:]
    native = Native(tmp_path, update, x)
    native.call(x)
    assert native.cuda.calls[0].params[0] == (made if offset else x).data_ptr()
    assert torch.equal(x, torch.zeros(8) if offset else torch.ones(8))


def test_products_are_calls_into_memory_of_the_program(tmp_path):
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    native = Native(tmp_path, lambda x, y: (x @ y, torch.addmm(x, x, y), x + 1), x, y)
    first, second, _ = native.call(x, y)
    assert torch.equal(first, x @ y)
    torch.testing.assert_close(second, torch.addmm(x, x, y))
    c = native_device_program(native.lowered.plan, native.lowered.source.functions, 0).c
    assert "fx.aoti_torch_cpu_mm_out(" in c


def test_sizes_give_the_grid_and_are_arguments(tmp_path):
    native = Native(tmp_path, lambda x: x.sin() * 2, torch.randn(100, 30), mode="symbolic")
    (result,) = native.call(torch.randn(500, 7))
    (call,) = native.cuda.calls
    assert (call.grid, sorted(call.params[2:4])) == (4, [7, 500])
    assert tuple(result.shape) == (500, 7)


@pytest.mark.parametrize("rows", [21, 40])
def test_sizes_are_computed_as_python_does(tmp_path, rows):
    """Slices and strides of unknown sizes have quotients, and the larger or smaller of two."""

    def fn(x):
        return x[3:-4] * 2, x[::3] + 1, x[: x.shape[0] // 2 - 7].exp()

    native = Native(tmp_path, fn, torch.randn(100, 3), mode="symbolic")
    x = torch.randn(rows, 3)
    assert [r.shape for r in native.call(x)] == [r.shape for r in fn(x)]


def test_all_functions_of_sizes_are_there():
    """As ``index_text`` spells them."""
    expr = extremum("max", S, integer(-3)) + extremum("min", mod(S, S - 4), S)
    text = c_index(expr + floordiv(S - 9, S))
    names = set(re.findall(r"\w+(?=\()", text))
    assert {"max_int64_t", "min_int64_t", "floordiv_int64_t", "remainder_int64_t"} <= names
    assert all(f" {name}(" in BEFORE for name in names)


def test_an_empty_tensor_is_not_launched(tmp_path):
    native = Native(tmp_path, lambda x: x.sin() * 2, torch.randn(100, 30), mode="symbolic")
    assert tuple(native.call(torch.randn(0, 7))[0].shape) == (0, 7)
    assert native.cuda.calls == []


def test_numbers_on_cpu_are_bits():
    assert tensor_bits(torch.tensor(2**64 - 1, dtype=torch.uint64)) == -1
    assert struct.pack("<q", tensor_bits(torch.tensor(0.5))) == struct.pack("<d", 0.5)


def test_a_boxed_program_frees_its_inputs(tmp_path):
    native = Native(tmp_path, lambda x, y: ((x * y).exp() @ y,), torch.ones(64, 64), torch.ones(64, 64), boxed=True)  # fmt: skip
    assert native.lowered.boxed
    inputs = [torch.ones(64, 64), torch.ones(64, 64)]
    native.call(inputs)
    assert inputs == []


def test_no_tensor_is_left(program):
    def live():
        return sum(isinstance(x, torch.Tensor) for x in gc.get_objects())

    inputs = (torch.randn(4097)[1:], torch.randn(64, 64).t(), torch.randn(4, 64))
    program.call(*inputs)
    gc.collect()
    before = live()
    for _ in range(5):
        program.call(*inputs)
    gc.collect()
    assert live() == before


def test_memory_that_is_not_there_raises_eagers_error(tmp_path):
    native = Native(tmp_path, lambda x: x.expand(2**50, 8) * 2, torch.ones(8))
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator: can't allocate memory"):
        native.call(torch.ones(8))
