"""Tensors on the meta device: inputs, writes to them, and errors of reading their data, as eager has them."""

import pytest
import torch

import fxstack_capture as fx

MODEL = torch.nn.Linear(4, 2, device="meta")

PROGRAMS = {
    "metadata": lambda x, w: (x + len(w), w.device, w.is_meta, w.dtype),
    "operators": lambda x, w: (x + 1, w * 2, w.exp().view(2, 2), w[1:]),
    "itself": lambda x, w: (x + 1, w),
    "writes": lambda x, w: (w.mul_(2), w[1:].add_(1), x + 1),
    "copies_to_it": lambda x, w: (w.copy_(x), x + 1),
    "computed": lambda x, w: (x.to("meta") + w, x * 2),
    "a_module": lambda x, w: (MODEL(w), x + 1),
    "names_of_parameters": lambda x, w: x + len(dict(MODEL.named_parameters())),
    "random_numbers": lambda x, w: (torch.rand_like(w), torch.rand(2), x + 1),
    "zero_dimensions": lambda x, w: x + w.sum(),
    "other_devices": lambda x, w: x + w,
    "concatenated_with_others": lambda x, w: torch.cat([x, w]),
    "data": lambda x, w: (x + 1, w.to("cpu")),
    "copied_data": lambda x, w: x.copy_(w),
    "a_number": lambda x, w: (x + 1, w.sum().item()),
    "a_list": lambda x, w: (x + 1, w.tolist()),
    "a_branch": lambda x, w: x + 1 if w.sum() else x,
    "a_mask": lambda x, w: (x + 1, w[w > 0]),
}


def shown(value):
    if isinstance(value, torch.Tensor):
        numbers = None if value.is_meta else value.tolist()
        return (
            value.shape,
            value.stride(),
            value.dtype,
            value.device,
            value.requires_grad,
            type(value),
            numbers,
        )
    return tuple(map(shown, value)) if isinstance(value, (tuple, list)) else value


def seen(program, make):
    torch.manual_seed(0)
    x, w = torch.ones(4), make()
    try:
        result = shown(program(x, w))
    except Exception as error:
        result = type(error), str(error)
    return result, shown(x), shown(w), w._version


@pytest.mark.parametrize(
    "make", [lambda: torch.ones(4, device="meta"), lambda: torch.nn.Parameter(torch.ones(4, device="meta"))]
)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_as_eager(program, make):
    optimised = fx.optimize(lambda graph, _: graph.forward)(program)
    for _ in range(2):
        assert seen(optimised, make) == seen(program, make)


def test_no_break():
    for name in list(PROGRAMS)[:9]:
        assert not fx.explain(PROGRAMS[name])(torch.ones(4), torch.ones(4, device="meta")).breaks, name


def test_a_tensor_of_another_device_compiles_anew():
    optimised = fx.optimize(lambda graph, _: graph.forward)(lambda w: (w + 1, w.is_meta))
    for device in ("meta", "cpu", "meta"):
        result, is_meta = optimised(torch.ones(2, device=device))
        assert (result.device.type, is_meta) == (device, device == "meta")


def test_two_that_are_written():
    def program(a, b, x):
        a.add_(1)
        b.mul_(2)
        return x + 1, a[1:], b.view(2, 2)

    graphs = []
    optimised = fx.optimize(lambda graph, _: graphs.append(graph) or graph.forward)(program)
    for _ in range(2):
        a, b = torch.ones(4, device="meta"), torch.ones(4, device="meta")
        result, of_a, of_b = optimised(a, b, torch.zeros(1))
        assert (result.item(), of_a._base is a, of_b._base is b) == (1, True, True)
        assert (a._version, b._version) == (1, 1)
    assert len(graphs) == 1


def test_one_that_is_written_beside_its_view():
    def program(a, b, x):
        a.add_(1)
        return x + b._version, b

    graphs = []
    optimised = fx.optimize(lambda graph, _: graphs.append(graph) or graph.forward)(program)
    for shared in (True, False, True):
        a = torch.ones(4, device="meta")
        b = a[1:] if shared else torch.ones(3, device="meta")
        result, same = optimised(a, b, torch.zeros(1))
        assert (result.item(), same is b, a._version) == (int(shared), True, 1)
