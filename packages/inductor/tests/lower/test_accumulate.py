"""Sums of products become accumulating calls in one place, where nothing else can tell."""

import pytest
import torch
from inductor_checks import check, check_gradients, externs, kernels

from fxstack_inductor.schedule.memory import place

A, B, C = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0)).unbind()


def repeated(x, w):
    for _ in range(6):
        x = (x @ w).tanh()
    return x


def products(*pairs):
    total = pairs[0][0] @ pairs[0][1]
    for a, b in pairs[1:]:
        total = total + a @ b
    return total


def mirrored(a, b, c):
    return (b @ c + (c @ a + a @ b)) * 2


def used_twice(a, b, c):
    product = a @ b
    return (product + b @ c).sin(), product


def broadcast(a, b, c):
    return (a[:1] @ b + b @ c).sin()


def scaled(a, b, c):
    return torch.add(a @ b, b @ c, alpha=2).sin()


def the_same(a, b, c):
    product = a @ b
    return (product + product).sin() + c


def squared(a, b, c):
    """The base is a factor of what is added to it."""
    product = a @ b
    return torch.addmm(product, product, c).sin()


def test_a_weight_used_many_times_has_one_gradient_buffer():
    compiled = check_gradients(repeated, A, B / 4)
    assert externs(compiled).count("aten.addmm.default") == 5
    slots = compiled.lowered.program.slots
    groups = {slot.group for slot in slots if slot.group}
    offsets, _ = place(slots, {})
    shared = {offset for offset, slot in zip(offsets, slots, strict=True) if slot.group}
    assert len(groups) == len(shared) == 1


def test_a_sum_of_products_is_computed_in_place():
    compiled = check(lambda a, b, c: products((a, b), (b, c), (c, a)).sin(), A, B, C)
    assert externs(compiled) == ["aten.mm.default", *["aten.addmm.default"] * 2]
    assert len(kernels(compiled)) == 1
    assert compiled.lowered.host.count(", out=t0_mm)") == 1
    calls = [line for line in compiled.lowered.text.split("\n") if "fx.aoti_torch_cpu_addmm" in line]
    assert all("addmm_out(w[1], w[1]" in c or "addmm_out(w[2], w[2]" in c for c in calls)


def test_either_side_may_be_the_sum():
    assert externs(check(mirrored, A, B, C)).count("aten.addmm.default") == 2


TURNED = {
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(-1, 0),
    "permute": lambda x: x.permute(1, 0),
    "thrice": lambda x: x.t().t().transpose(1, 0),
}


@pytest.mark.parametrize("turn", TURNED.values(), ids=TURNED)
def test_transposed_products(turn):
    def twice(a, b, c):
        return (turn(turn(a @ b)) + turn(turn(b @ c)) + c @ a).sin()

    def once(a, b, c):
        return turn(a @ b) + turn(b @ c) + turn(c @ a)

    a, b = torch.randn(3, 8), torch.randn(8, 5)
    check(lambda a, b: turn(a @ b) + turn(a @ (b * 2)), a, b)
    for fn in (twice, once):
        assert externs(check(fn, A, B, C)) == ["aten.mm.default", *["aten.addmm.default"] * 2]


def turned_apart(a, b, c):
    return (a @ b).t() + b @ c


def turned_and_read(a, b, c):
    turned = (a @ b).t()
    return turned + (b @ c).t(), turned.sin()


def turned_sum(a, b, c):
    return ((a @ b).t() + (b @ c).t()).t() + c @ a


def test_a_turned_sum_is_no_product():
    assert externs(check(turned_sum, A, B, C)).count("aten.addmm.default") == 1


def test_a_recurrent_weight_has_one_gradient_buffer():
    def run(x, inner, own):
        state = x.new_zeros(2, 4)
        for step in x.unbind(1):
            state = (torch.nn.functional.linear(step, inner) + torch.nn.functional.linear(state, own)).tanh()
        return state

    compiled = check_gradients(run, torch.randn(2, 5, 3), torch.randn(4, 3), torch.randn(4, 4))
    assert externs(compiled).count("aten.addmm.default") >= 4 + 4


@pytest.mark.parametrize("fn", [turned_apart, turned_and_read, used_twice, broadcast, scaled, the_same])
def test_other_sums_stay(fn):
    assert "aten.addmm.default" not in externs(check(fn, A, B, C))


def test_a_base_that_is_a_factor_keeps_its_memory():
    assert not any(slot.group for slot in check(squared, A, B, C).lowered.program.slots)


def test_half_precision_rounds_after_each_product():
    inputs = [x.bfloat16() for x in (A, B, C)]
    assert "aten.addmm.default" not in externs(check(mirrored, *inputs))


def test_symbolic_sizes():
    others = [tuple(torch.randn(n, n) for _ in range(3)) for n in (3, 17)]
    check(mirrored, A, B, C, symbolic=True, others=others)
