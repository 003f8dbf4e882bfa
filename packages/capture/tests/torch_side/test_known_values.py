"""Values of tensors made of the program's own numbers are known while tracing, and no others are."""

from __future__ import annotations

import pytest
import torch

import fxstack_capture as fx

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def written(x):
    t = torch.arange(4)
    t.view(2, 2).add_(1)
    return x * t[0].item()


def written_by_a_list_operator(x):
    t = torch.zeros(3)
    torch._foreach_add_([t], 2.0)
    return x * t[0].item()


def changed_afterwards(x):
    t = torch.full((2,), 3.0) * 2
    y = x * t[0].item()
    t.mul_(2)
    return y + t[0].item(), t


def random(x):
    return x * torch.full((3,), 0.5).bernoulli().sum().item()


def of_another_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    try:
        t = torch.linspace(0, 1, 7)
    finally:
        torch.set_default_dtype(torch.float32)
    return x * t[3].item()


def layers(x):
    scales = [x, x + 1, x * 2]
    for index in torch.arange(3) % 2:
        x = x * scales[index]
    return x, (1, 2, 3)[torch.arange(3)[2]], [0] * (torch.arange(2) + 1)[1]


def parts(x):
    x = x.flatten().clone()
    ends = torch.cumsum(torch.tensor([1, 2]), 0)
    x[ends[0] : ends[1]] = 7
    return [x[:end] for end in ends], x[ends[0] : ends[1] + 1], x[..., ends[0]]


def sizes(x):
    two, ones = torch.arange(3)[2] + 0, torch.arange(2)
    return (
        x.reshape(two, -1),
        x.view(*(ones + 1), 2),
        torch.full((two,), ones[1]),
        x.new_full((two, 1), two + 1),
    )


def not_a_number(x):
    try:
        return x * int(torch.tensor([float("nan"), 1.0])[0])
    except ValueError:
        return x * 2


KNOWN = {
    "item": lambda x: x * torch.linspace(0, 0.1, 3)[1].item(),
    "conversions": lambda x: x * int(torch.arange(3).sum()) + float(torch.tensor([1.5, 2]).max()),
    "tolist": lambda x: x.flatten().split((torch.tensor([[1, 1], [1, 2]]).prod(1) + 0).tolist()[:1] * 4),
    "truth": lambda x: x if (torch.arange(12).reshape(3, 4) % 5 == 0).any() else -x,
    "sizes": lambda x: x.view(torch.div(x.shape[0] * x.shape[1], 2, rounding_mode="trunc"), 2),
    "layers": layers,
    "parts": parts,
    "several sizes": sizes,
    "half": lambda x: (x, torch.tensor([1.5, 2.5], dtype=torch.bfloat16).mul(1.1).tolist()),
    "not_a_number": not_a_number,
}  # fmt: skip
UNKNOWN = {
    "of_an_input": lambda x: x * x.sum().item(),
    "written": written,
    "written_by_a_list_operator": written_by_a_list_operator,
    "changed_afterwards": changed_afterwards,
    "random": random,
    "of_another_default_dtype": of_another_default_dtype,
    "unwritten": lambda x: x * torch.empty(3).fill_(2.0)[0].item(),
    "a part of an input": lambda x: x[: x.sum().int() - 9],
    "of_a_size_that_changes": lambda x: x * torch.arange(x.shape[0]).sum().item(),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_values_keep_the_graph_whole(name):
    compiled = fx.optimize(fullgraph=True)(KNOWN[name])
    torch.testing.assert_close(compiled(X), KNOWN[name](X), rtol=0, atol=0)


@pytest.mark.parametrize("name", UNKNOWN)
def test_others_are_asked_for_when_the_program_runs(name):
    compiled = fx.optimize()(UNKNOWN[name])
    for x in (X, X + 1, torch.ones(3, 2), torch.ones(5, 2)):
        torch.manual_seed(0)
        found = compiled(x)
        torch.manual_seed(0)
        torch.testing.assert_close(found, UNKNOWN[name](x), rtol=0, atol=0)
