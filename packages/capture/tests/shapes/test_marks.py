"""Marks on tensors of later calls: as many graphs as torch.compile makes."""

from unittest.mock import Mock

import pytest
import torch

import fxstack_capture as fx

MARKS = {
    "dynamic": (torch._dynamo.mark_dynamic, fx.mark_dynamic),
    "maybe": (torch._dynamo.maybe_mark_dynamic, fx.maybe_mark_dynamic),
    "static": (torch._dynamo.mark_static, fx.mark_static),
    "unbacked": (torch._dynamo.decorators.mark_unbacked, fx.mark_unbacked),
}

BEFORE_213 = torch.__version__ < "2.13"


def double(x):
    return x * 2


def made(compiling, which, calls, **options):
    """Numbers of graphs after each call; a call is a shape, and marks as (name, dimension) or (name, dimension, bounds)."""
    graphs, counts = [], []
    compiled = compiling(double, lambda gm, _: graphs.append(gm) or gm.forward, **options)
    for shape, *marks in calls:
        x = torch.ones(shape)
        for name, dim, *bounds in marks:
            MARKS[name][which](x, dim, **dict(*bounds))
        assert torch.equal(compiled(x), x * 2)
        counts.append(len(graphs))
    return counts


def ours(fn, backend, **options):
    return fx.optimize(backend, **options)(fn)


def incumbent(fn, backend, **options):
    torch._dynamo.reset()
    return torch.compile(fn, backend=backend, **options)


DYNAMIC, MAYBE, STATIC, UNBACKED = (("dynamic", 0), ("maybe", 0), ("static", 0), ("unbacked", 0))
FROM_4_TO_8 = ("dynamic", 0, {"min": 4, "max": 8})
CALLS = {
    "a later mark": [((3,),), ((3,), DYNAMIC), ((4,),), ((5,),)],
    "of another size": [((3,),), ((4,), DYNAMIC), ((5,),), ((3,),)],
    "fewer marks": [((3,), DYNAMIC), ((4,),), ((5,),), ((1,),)],
    "the same mark": [((3,), DYNAMIC), ((3,), DYNAMIC), ((4,), DYNAMIC)],
    "static first": [((3,), STATIC), ((3,), DYNAMIC), ((4,),)],
    "static later": [((3,), DYNAMIC), ((4,), STATIC), ((5,),), ((6,), STATIC)],
    "maybe": [((3,),), ((3,), MAYBE), ((4,),)],
    "unbacked": [((3,),), ((3,), UNBACKED), ((4,),), ((1,),)],
    "a range": [((5,),), ((5,), FROM_4_TO_8), ((6,),), ((9,),), ((3,),)],
    "another dimension": [((3, 4),), ((3, 4), ("dynamic", 1)), ((3, 7),), ((4, 7),)],
    "one dimension, then another": [((3, 4), DYNAMIC), ((3, 4), ("dynamic", 1)), ((3, 7),), ((4, 7),), ((9, 9),)],
    "a size of 1": [((1,), DYNAMIC), ((1,),), ((4,),)],
    "a size of 1, later": [((1,),), ((1,), DYNAMIC), ((4,),), ((5,),)],
    "a size of 0": [((0,), DYNAMIC), ((4,),), ((5,),)],
}  # fmt: skip


OTHERS_BEFORE_213 = ("static later", "maybe", "unbacked")
"""Marks of which torch.compile makes fewer graphs since then."""


@pytest.mark.parametrize("name", CALLS)
def test_as_many_graphs(name):
    if BEFORE_213 and name in OTHERS_BEFORE_213:
        pytest.skip("torch.compile made other graphs before 2.13")
    calls = CALLS[name]
    expected = made(incumbent, 0, calls)
    assert made(ours, 1, calls) == expected
    assert made(ours, 0, calls) == expected  # torch's own marks


def test_a_later_mark_that_the_program_refuses():
    compiled = fx.optimize()(lambda x: x * 2 if x.shape[0] == 3 else x)
    compiled(torch.ones(3))
    marked = torch.ones(3)
    fx.mark_dynamic(marked, 0)
    with pytest.raises(fx.ShapeContractError):
        compiled(marked)


def test_what_failed_is_said():
    compiled = fx.optimize(options=fx.CaptureOptions(error_on_recompile=True))(double)
    compiled(torch.ones(3))
    marked = torch.ones(3)
    fx.mark_dynamic(marked, 0)
    with pytest.raises(
        fx.RecompileError,
        match=r"must not have marks other than none, but the marks are _dynamo_dynamic_indices \[0\]",
    ):
        compiled(marked)  # fmt: skip


def test_strict_unbacked_marks_are_heeded():
    graphs = []
    compiled = fx.optimize(lambda gm, _: graphs.append(gm) or gm.forward)(double)
    marked = torch.ones(3)
    torch._dynamo.decorators.mark_unbacked(marked, 0, strict=True)
    for x in (marked, torch.ones(1), torch.ones(5)):
        assert torch.equal(compiled(x), x * 2)
    assert len(graphs) == 1


def test_mark_static_takes_classes_of_modules_and_refuses_other_objects():
    class Module(torch.nn.Module):
        pass

    for mark in MARKS["static"]:
        assert mark(Module) is Module
        for wrong in (Mock(), Module(), 3, None, int, [torch.ones(2)]):
            with pytest.raises(TypeError):
                mark(wrong)
    fx.mark_static(x := torch.ones(2, 3))
    assert x._dynamo_static_indices == {0, 1}
