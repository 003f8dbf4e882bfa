"""Launching through the driver: against a driver that records, so without a GPU."""

import ctypes

import pytest
from fake_cuda import FakeCuda

from fxstack_inductor import InductorOptions
from fxstack_inductor.errors import CudaError
from fxstack_inductor.runtime.cubins import Cubin
from fxstack_inductor.runtime.cuda_driver import Driver, Launchers

OPTIONS = InductorOptions(optimization=1, use_cache=False)


def cubin(**changes):
    facts = {"parameters": 4, "threads": 128, "shared": 0, "scratch": 0}
    return Cubin("kernel_0", b"\x7fELF", **facts | changes)


@pytest.fixture
def cuda(tmp_path):
    return FakeCuda(tmp_path, params=4)


def added(cuda, arguments=2, device=0, **changes):
    launchers = Launchers(cuda.driver, OPTIONS)
    return launchers, *launchers.add(cubin(**changes), arguments, device)


def test_arguments_arrive_and_scratch_pointers_are_null(cuda):
    _, record, launch = added(cuda)
    launch(record, 7, 33, 2**45 + 1, -5)
    (call,) = cuda.calls
    assert (call.stream, call.grid, call.threads) == (7, 33, 128)
    assert call.params[:4] == [2**45 + 1, -5, 0, 0]


def test_a_thread_without_a_context_gets_the_kernels(cuda):
    _, record, launch = added(cuda, device=3)
    launch(record, 0, 1, 0, 0)
    assert cuda.calls[0].context == 0x1003


def test_an_empty_grid_is_not_launched(cuda):
    launchers, record, launch = added(cuda)
    launch(record, 0, 0, 1, 2)
    launchers.check()
    assert cuda.calls == []


def test_much_shared_memory_is_asked_for(cuda):
    _, record, launch = added(cuda, shared=100_000)
    launch(record, 0, 1, 0, 0)
    assert cuda.number("shared_asked").value == 100_000
    assert cuda.calls[0].shared == 100_000


def test_a_refused_launch_raises_the_drivers_words_once(cuda):
    launchers, record, launch = added(cuda)
    cuda.number("fake_status").value = 1
    launch(record, 0, 1, 0, 0)
    with pytest.raises(CudaError, match=r"could not be launched: invalid argument \(CUDA error 1\)"):
        launchers.check()
    launchers.check()


def test_damaged_machine_code_raises(cuda):
    with pytest.raises(CudaError, match="device kernel image is invalid"):
        Launchers(cuda.driver, OPTIONS).add(
            Cubin("k", b"text", parameters=2, threads=32, shared=0, scratch=0), 0, 0
        )


@pytest.mark.parametrize("changes", [{"scratch": 8}, {"parameters": 1}])
def test_a_kernel_that_needs_more_than_it_is_given_is_refused(cuda, changes):
    with pytest.raises(CudaError, match="2 arguments for .* this is a defect"):
        added(cuda, **changes)


def test_a_missing_driver_says_what_to_do():
    with pytest.raises(CudaError, match="driver cannot be loaded .* install NVIDIA's driver"):
        Driver("libnocuda.so.1").context(0)


def test_the_record_is_laid_out_as_in_c(cuda):
    launchers, record, _ = added(cuda, threads=64)
    assert record == ctypes.addressof(launchers.records[0])
    assert launchers.records[0].threads == 64


def test_the_driver_says_its_version(cuda):
    assert cuda.driver.version() == 13000
