"""The host program on CUDA: graphs traced on a GPU that is not there, launches recorded by a driver that is not one."""

import re
import struct

import pytest
import torch
from fake_cuda import FakeCuda
from inductor_checks import with_range
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph, decompositions
from fxstack_inductor.lower.host.numbers import number_bits, tensor_bits
from fxstack_inductor.schedule.steps import KernelStep
from fxstack_inductor.targets.triton.artifact import graph_refusal
from fxstack_inductor.targets.triton.load import _interpreted_kernels, device_kernels
from fxstack_inductor.targets.triton.lower import lower_triton
from fxstack_interchange.operators.kernel_operators import functional_operator
from fxstack_interchange.operators.kernels import KernelArgument, KernelLaunch

pytest.importorskip("triton")


def trace(fn, *shapes, device="cuda:0", dtype=torch.float32):
    with FakeTensorMode():
        inputs = [torch.empty(s, device=device, dtype=dtype) for s in shapes]
        return make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)


def lowered(fn, *shapes, **kwargs):
    return lower_triton(trace(fn, *shapes, **kwargs), InductorOptions())


def kernels(low):
    return [s.kernel for s in low.plan.steps if isinstance(s, KernelStep)]


def test_tensors_on_a_gpu_become_kernels_there():
    low = lowered(lambda x: (x + 1).relu().sum(-1), (8, 16))
    assert len(kernels(low)) == 1
    assert torch.device("cuda:0") in low.program.constants.values()
    assert "stream0 = current_stream(0)" in low.host


def test_tensors_on_cpu_beside_them_are_calls():
    def both(x):
        return x + 1, torch.arange(3, device="cpu") * 2

    low = lowered(both, (8,))
    assert len(kernels(low)) == 1
    assert "mul" in low.host


def update(x):
    torch.ops.aten.copy_.default(x, x + 1)
    return x * 2


def test_kernels_write_to_mutated_inputs_themselves():
    host = lowered(update, (8,)).host
    assert "if p_x_1 != x_1.data_ptr(): x_1.copy_(t_x_1)" in host
    assert host.count("empty_strided") == 1


@pytest.mark.parametrize("offset", [0, 1])
def test_what_is_written_to_an_aligned_copy_is_copied_back(tmp_path, offset, monkeypatch):
    """The kernels do nothing: the copy is made to hold something else."""
    made = torch.zeros(8)
    monkeypatch.setattr("fxstack_inductor.codegen.host.triton_host.aligned", lambda _tensor: made)
    x = torch.ones(8 + offset)[offset:]
    run = Recorded(tmp_path, update, x, params=3)
    assert run.cuda.calls[0].params[0] == (made if offset else x).data_ptr()
    assert torch.equal(x, torch.zeros(8) if offset else torch.ones(8))


def test_numbers_of_vmap_are_constants_of_the_kernel():
    low = lowered(torch.vmap(lambda x: x * 2.5 + 1), (8, 16))
    assert len(kernels(low)) == len(low.plan.steps) == 1
    assert graph_refusal(low.plan) is None


def test_each_device_has_its_stream_and_record():
    def two(x):
        return x + 1, x.to("cuda:1") * 2

    low = lowered(two, (8,))
    assert "with on_device(0): kernel_0(record_kernel_0, stream0" in low.host
    assert "with on_device(1): kernel_1_on1(record_kernel_1_on1, stream1" in low.host


def test_sizes_give_the_grid_and_are_arguments():
    graph = make_fx(lambda x: x * 2, tracing_mode="symbolic")(torch.randn(100, 30))
    host = lower_triton(graph, InductorOptions()).host
    assert re.search(r"stream0, .*s\d+\*s\d+ \+ 1023\)? // 1024\), p_x_1, p_mul__0, s\d+, s\d+\)", host)


REFUSED = {
    "is on cpu": lambda x: (x + 1, torch.ones(2, device="cpu") * 2),
    "it spans cuda:0, cuda:1": lambda x: x.to("cuda:1") * 2,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_graphs_that_need_the_host_are_not_recorded(reason):
    assert reason in graph_refusal(lowered(REFUSED[reason], (8,)).plan)


def test_graphs_that_wait_for_a_size_are_not_recorded():
    graph = make_fx(lambda x: x.nonzero(), tracing_mode="symbolic")(torch.ones(8))
    plan = lower_triton(graph, InductorOptions()).plan
    assert "gives a tensor whose size the host must wait for" in graph_refusal(plan)


def test_graphs_with_profiler_ranges_are_not_recorded():
    graph = with_range(trace(lambda x: x.sin() * 2, (8,)), "sin", "sin")
    low = lower_triton(graph, InductorOptions())
    assert len(kernels(low)) == 2
    assert "begins or ends a profiler range" in graph_refusal(low.plan)


@pytest.mark.parametrize(("dtype", "refused"), [(torch.int64, False), (torch.bool, True)])
def test_an_index_by_numbers_waits_for_nothing(dtype, refused):
    """Complex numbers are left to ATen."""

    def fn(x, at):
        return torch.ops.aten.index.Tensor(x, [at])

    at = torch.ones(3, dtype=dtype)
    graph = make_fx(fn, tracing_mode="symbolic")(torch.ones(3, dtype=torch.complex64), at)
    refusal = graph_refusal(lower_triton(graph, InductorOptions()).plan)
    assert ("host must wait" in refusal) == refused


def test_graphs_of_one_device_are_recorded():
    assert graph_refusal(lowered(lambda x: (x @ x).relu().sum(), (8, 8)).plan) is None


class Doubling:
    """A user's kernel, as far as a graph knows it."""

    def run(self, x, **_options):
        x.mul_(2)


def test_graphs_with_users_kernels_are_recorded():
    arguments = (KernelArgument("x", "tensor"),)
    launch = functional_operator(KernelLaunch(Doubling(), arguments, 1, written=frozenset("x")))
    low = lowered(lambda x: launch(x + 1, [1, 1, 1]) + 1, (8,))
    assert graph_refusal(low.plan) is None
    assert "in_place" in low.host


class Recorded:
    """A graph of CPU tensors run through the host program that CUDA gets; its kernels do nothing."""

    def __init__(self, folder, fn, *inputs, params=8):
        self.cuda = FakeCuda(folder, params)
        graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)
        options = InductorOptions(cache_dir=folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fxstack_inductor.schedule.side_by_side.SMALL", 0)  # a launch for each kernel
            low = lower_triton(graph, options)
        namespace = {**low.program.constants, "current_stream": lambda device: 11 + device}
        namespace |= device_kernels(low, options, self.cuda.driver, {0: 90})
        exec(low.host, namespace)
        self.results = namespace["call"](*inputs)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    whole = torch.randn(4097)
    inputs = (whole[1:], torch.randn(64, 64), torch.randn(4, 64))

    def run():
        return Recorded(folder, lambda x, y, z: (x + 1, (y * y).sum(1), z.relu()), *inputs, params=3)

    return run, run(), inputs


def test_launches_carry_streams_grids_and_addresses(recorded):
    _, first, (_, y, z) = recorded
    flat, rows = sorted(first.cuda.calls[1:3], key=lambda call: call.grid)
    assert {call.stream for call in first.cuda.calls} == {11}
    assert (flat.grid, flat.threads) == (2, 128)
    assert rows.params[:2] == [y.data_ptr(), first.results[1].data_ptr()]
    assert flat.params[:2] == [z.data_ptr(), first.results[2].data_ptr()]


def test_a_slice_that_is_not_aligned_is_read_from_a_copy(recorded):
    _, first, (x, _, _) = recorded
    assert first.cuda.calls[0].params[0] != x.data_ptr()
    assert first.cuda.calls[0].params[0] % 16 == 0


def test_machine_code_is_kept_on_disk(recorded, monkeypatch):
    run, first, _ = recorded
    monkeypatch.setattr("fxstack_inductor.runtime.cubins.compile_archive", None)
    assert [c.grid for c in run().cuda.calls[3:]] == [c.grid for c in first.cuda.calls[:3]]


def test_what_a_call_lays_out_otherwise_is_copied():
    """Kernels are told strides by torch's fake tensors; the operator gives others."""

    @torch.library.custom_op("fxstack_tests::turned", mutates_args=())
    def turned(x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous().t()

    turned.register_fake(torch.empty_like)
    x = torch.randn(5, 7)
    graph = make_fx(lambda x: torch.ops.fxstack_tests.turned(x) + x, tracing_mode="fake")(x)
    call = compile_graph(graph, (x,), InductorOptions(target="cuda"))
    assert "turned = as_declared(" in call.lowered.host
    assert torch.equal(call(x)[0], x + x)


NUMBERS = [
    torch.tensor(value, dtype=dtype)
    for value, dtype in (
        (-0.1, torch.float64),
        (0.1, torch.float32),
        (-2.5, torch.bfloat16),
        (3.5, torch.float16),
        (-(2**40), torch.int64),
        (-3, torch.int8),
        (200, torch.uint8),
        (True, torch.bool),
    )
]


def interpreted(fn, x, *numbers):
    """``fn`` traced with ``x`` on a GPU and ``numbers`` on CPU, its kernels in Triton's interpreter, everything on CPU."""
    with FakeTensorMode() as mode:
        own = torch.empty(x.shape, dtype=x.dtype, device="cuda")
        others = [mode.from_tensor(n) for n in numbers]
        graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(own, *others)
    low = lower_triton(graph, InductorOptions(), interpreted=True)
    devices = {k: torch.device("cpu") for k, v in low.program.constants.items() if v == CUDA}
    namespace = {**low.program.constants, **devices}
    namespace |= _interpreted_kernels(low, InductorOptions())
    exec(low.host, namespace)
    return low, namespace["call"](x, *numbers)


CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: str(n.dtype))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_numbers_on_cpu_are_arguments_of_kernels(number, dtype):
    def fn(x, n):
        return x * n, torch.where(x > 0, x, n)

    x = torch.arange(-3, 5).to(dtype)
    low, results = interpreted(fn, x, number)
    assert len(low.source.functions) == 1
    assert [s.target for s in low.plan.steps if not isinstance(s, KernelStep)] == [tensor_bits]
    rtol = 1e-2 if dtype is torch.bfloat16 else 0  # the interpreter cuts off where a GPU rounds
    torch.testing.assert_close(results, fn(x, number), rtol=rtol, atol=0)


def test_graphs_with_numbers_on_cpu_are_not_recorded():
    low, _ = interpreted(lambda x, n: x * n, torch.ones(3), torch.tensor(2.0))
    assert "n_1 is a number that kernels are launched with" in graph_refusal(low.plan)


def test_numbers_reach_the_driver_as_their_bits(tmp_path):
    cuda = FakeCuda(tmp_path, 3)
    low, _ = interpreted(lambda x, n: x * n, torch.ones(3), torch.tensor(-0.1))
    options = InductorOptions(cache_dir=tmp_path)
    launch = device_kernels(low, options, cuda.driver, {0: 90})
    launch["kernel_0"](launch["record_kernel_0"], 0, 1, 16, number_bits(-0.1), 32)
    assert struct.pack("<q", cuda.calls[0].params[1]) == struct.pack("<d", -0.1)
    assert number_bits(1.0) == tensor_bits(torch.tensor(1.0, dtype=torch.bfloat16)) == 0x3FF << 52
