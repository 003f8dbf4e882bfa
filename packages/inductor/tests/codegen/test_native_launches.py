"""Launches of equal kernels are one loop of the native host program, with the values of single launches."""

import re
from types import SimpleNamespace

import pytest
import torch
from inductor_checks import trace
from torch.profiler import profile

import fxstack_inductor as fi
from fxstack_inductor import InductorOptions
from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.native_launches import write_launches
from fxstack_inductor.codegen.host.native_text import Tables
from fxstack_inductor.targets.c.lower import lower_c

COUNT = 9


def updated(*tensors):
    """A step of an optimizer: each tensor of the first half changes by a tensor of the second half."""
    half = len(tensors) // 2
    for value, grad in zip(tensors[:half], tensors[half:], strict=True):
        value.copy_(value - grad.sin() * 0.5)


def returned(*tensors):
    return tuple((x + 1).exp() for x in tensors)


def with_constants(*tensors):
    return tuple(x.cos() + torch.tensor([1.0, 2.0]) for x in tensors)


def of_sizes(*sizes):
    return [torch.randn(size, 2) for size in sizes]


PROGRAMS = {
    "updated": (updated, of_sizes(*[3] * 2 * COUNT)),
    "returned": (returned, of_sizes(*[3] * COUNT)),
    "with constants": (with_constants, of_sizes(*[3] * COUNT)),
    "two sizes": (returned, of_sizes(*[3] * COUNT, *[5] * COUNT)),
    "sizes in turn": (returned, of_sizes(*[3, 5] * COUNT)),
    "few": (returned, of_sizes(3, 3)),
}


def text(fn, inputs, **options):
    return lower_c(trace(fn, *inputs), InductorOptions(**options)).program.c


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_eager_s(name, boxed):
    fn, inputs = PROGRAMS[name]
    wanted, given = ([x.clone() for x in inputs] for _ in range(2))
    expected = fn(*wanted)
    compiled = fi.compile_graph(trace(fn, *inputs), inputs, boxed=boxed)
    # The last input has other strides than traced, so the program lays a copy of it out.
    given[-1] = given[-1].t().contiguous().t()
    kept = list(given)
    results = compiled(given) if boxed else compiled(*given)
    found = [result for result in results if result is not None]
    torch.testing.assert_close((*found, *kept), (*(expected or ()), *wanted))


class Lines(list):
    """A printer that lists the lines of loops, and the records that are written one by one."""

    tables, addresses, error_address = Tables(), {}, "&error"
    functions = {"k": "kernel_0"}
    handles = {"v": "h0_v", **{f"x{k}": f"x[{k}]" for k in range(8)}}
    line = check = list.append

    def lock(self, wanted):
        pass


def launch(name):
    buffer = records.Buffer(name, number=False, aligned=True)
    kernel = SimpleNamespace(name="k", sizes=(), checked=False, title=name)
    return records.Launch(kernel, (buffer,), (), torch.device("cpu"))


@pytest.mark.parametrize("names", ["v x0 x1 x2 x3 x4", "x0 x1 x2 x3 v", "v v x0 x1 x2 x3 v x4", "x0 v x1 x2"])
def test_tensors_without_a_place_are_launched_in_their_order(names):
    printer = Lines()
    run = [step for name in names.split() for step in (launch(name), records.Free((name,)))]
    write_launches(printer, run, printer.append)
    found = []
    for step in printer:
        if isinstance(step, records.Launch):
            found.append(step.kernel.title)
        elif isinstance(step, str) and "titles[] =" in step:
            found += re.findall(r'"(\w+)"', step)
    freed = [name for step in printer if isinstance(step, records.Free) for name in step.names]
    assert (found, freed) == (names.split(), names.split())


@pytest.mark.parametrize(("name", "loops"), [("updated", 1), ("returned", 1), ("two sizes", 2), ("few", 0)])
def test_equal_launches_are_one_loop(name, loops):
    assert text(*PROGRAMS[name]).count("titles[] =") == loops


def test_a_loop_grows_by_its_tables_alone():
    lengths = [len(text(returned, of_sizes(*[3] * count)).splitlines()) for count in (10, 100)]
    assert lengths[1] - lengths[0] < 20


def test_a_profile_names_each_launch():
    compiled = fi.compile_graph(trace(returned, *PROGRAMS["returned"][1]), PROGRAMS["returned"][1])
    with profile() as found:
        compiled(*PROGRAMS["returned"][1])
    names = {event.key for event in found.key_averages()}
    assert len([name for name in names if name.startswith("fused_")]) == COUNT
