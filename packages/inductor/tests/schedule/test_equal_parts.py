"""Equal parts of a program: eager's values, and the schedule that the program has without this pass."""

from unittest import mock

import pytest
import torch
from inductor_checks import FAST, assert_equal, copies, trace

import fxstack_inductor as fi
from fxstack_inductor.schedule import plan

SEED = torch.Generator().manual_seed(0)


def tensors(count, *shape, dtype=torch.float32):
    return [torch.rand(shape, generator=SEED).to(dtype) for _ in range(count)]


def parts_of(fn, *inputs):
    """Compile and compare with eager. Return (parts, interleaved) of each group, and compare the two schedules."""
    found = []

    def observed(program):
        found.extend(equal_parts(program))
        return list(found)

    equal_parts = plan.equal_parts
    graph = trace(fn, *copies(inputs))
    with mock.patch.object(plan, "equal_parts", observed):
        run = fi.compile_graph(graph, inputs, FAST)
    ours, theirs = copies(inputs), copies(inputs)
    assert_equal(run(*ours), fn(*theirs))
    assert_equal(ours, theirs)
    with mock.patch.object(plan, "equal_parts", lambda _: []):
        apart = fi.lower(graph, inputs, FAST)
    assert launches(run.lowered) == launches(apart)
    assert run.lowered.c == apart.c
    return [(1 + len(group.copies), group.interleaved) for group in found]


def launches(lowered):
    """All that is known of the launches and copies of a schedule, in any order."""
    steps = [step for step in lowered.plan.steps if hasattr(step, "kernel")]
    kernels = [
        (s.kernel.origins, s.kernel.comments, s.kernel.buffers, s.kernel.written, s.kernel.values, s.stored)
        for s in steps
    ]
    names = [
        (*map(str, kernel[:-1]), *(node.name for node in kernel[-1]), *(node.name for node in step.reads))
        for kernel, step in zip(kernels, steps)
    ]
    return sorted(names), sorted((m.target.name, m.value.name) for m in lowered.plan.copies)


def by_operators(*lists):
    """Each operator for all parameters, before the next operator."""
    half = len(lists) // 2
    for parameter, gradient in zip(lists[:half], lists[half:]):
        parameter.mul_(0.9)
        gradient.add_(1)
    for parameter, gradient in zip(lists[:half], lists[half:]):
        parameter.addcdiv_(gradient.sin(), gradient.exp().sum(0, keepdim=True), value=-0.1)
    return ()


def by_parameters(*lists):
    half = len(lists) // 2
    for parameter, gradient in zip(lists[:half], lists[half:]):
        parameter.sub_(gradient * gradient.square().mean())
    return ()


def with_a_number(number, *parameters):
    for parameter in parameters:
        parameter.mul_(number)
    return ()


def with_a_common_tensor(other, *parameters):
    for parameter in parameters:
        parameter.mul_(other)
    return ()


def with_factors(*parameters):
    for factor, parameter in enumerate(parameters):
        parameter.mul_(factor % 2 + 2)
    return ()


def returned(*parameters):
    return tuple(parameter * 2 for parameter in parameters)


def swapped(*parameters):
    new = [other * 2 for other in (*parameters[1:], parameters[0])]
    for parameter, value in zip(parameters, new):
        parameter.copy_(value)
    return ()


def indexed(index, *parameters):
    for parameter in parameters:
        parameter.sub_(parameter[index])
    return ()


def counted(*steps):
    """Counters of one number each, which are parts of their own."""
    for step in steps:
        step.add_(1)
    return ()


def with_changed_number(number, *parameters):
    for parameter in parameters:
        parameter.mul_(number)
    number.add_(1)
    return ()


def beside_a_number(number, other, *parameters):
    """A number that a kernel of no group reads, too."""
    for parameter in parameters:
        parameter.mul_(number)
    other.mul_(number).add_(1)
    return ()


def with_own_numbers(other, *lists):
    half = len(lists) // 2
    for number, parameter in zip(lists[:half], lists[half:]):
        parameter.mul_(number)
    other.mul_(lists[0])
    return ()


def with_counted_numbers(*lists):
    half = len(lists) // 2
    for number, parameter in zip(lists[:half], lists[half:]):
        number.add_(1)
        parameter.mul_(number)
    return ()


@pytest.mark.parametrize(
    ("fn", "inputs", "groups"),
    [
        (by_operators, tensors(12, 8, 8), [(6, True)]),
        (by_parameters, tensors(12, 8, 8), [(6, False)]),
        (by_parameters, tensors(6, 8, 8), []),
        (by_parameters, [*tensors(4, 8), *tensors(4, 3, 5)] * 2, [(4, False), (4, False)]),
        (by_parameters, [*tensors(4, 8), *tensors(4, 8, dtype=torch.float64)] * 2, [(4, False)] * 2),
        (by_parameters, [t.t() if k % 2 else t for k, t in enumerate(tensors(16, 4, 6))], [(4, False)] * 2),
        (with_a_number, [*tensors(1), *tensors(5, 7)], [(5, False)]),
        (with_a_number, [*tensors(1), *tensors(5, 7), *tensors(5, 3)], [(5, False)] * 2),
        (beside_a_number, [*tensors(1), *tensors(1, 3), *tensors(5, 7)], [(5, False)]),
        (beside_a_number, [*tensors(1), *tensors(6, 7)], [(5, False)]),
        (with_own_numbers, [*tensors(1, 3), *tensors(5), *tensors(5, 7)], [(5, False)]),
        (with_counted_numbers, [*tensors(5), *tensors(5, 7)], [(5, False)]),
        (with_a_common_tensor, tensors(6, 7), []),
        (with_a_common_tensor, [*tensors(1, 1), *tensors(5, 7)], []),
        (with_factors, tensors(8, 7), [(4, False), (4, False)]),
        (returned, tensors(8, 7), []),
        (swapped, tensors(8, 7), []),
        (indexed, [torch.tensor([1, 0, 2]), *tensors(5, 3)], []),
        (counted, tensors(6), [(6, False)]),
        (with_changed_number, [*tensors(1), *tensors(6, 5)], []),
    ],
)
def test_equal_parts_have_the_schedule_that_each_has_alone(fn, inputs, groups):
    assert parts_of(fn, *inputs) == groups


def test_the_schedule_of_a_part_is_found_once():
    with mock.patch.object(plan, "build_kernel", wraps=plan.build_kernel) as build:
        fi.lower(trace(by_parameters, *tensors(40, 8, 8)), (), FAST)
    assert build.call_count == 1
