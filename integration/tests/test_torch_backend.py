"""torch.compile(backend="fxstack"): our last three layers under torch's frontend."""

import copy

import torch
import zoo


def test_trains_like_eager():
    case = zoo.build("mlp")
    twin = copy.deepcopy(case.model)
    compiled = torch.compile(twin, backend="fxstack")
    torch.manual_seed(0)
    case.loss(case.model, case.batch).backward()
    torch.manual_seed(0)
    case.loss(compiled, case.batch).backward()
    for ours, eager in zip(twin.parameters(), case.model.parameters()):
        torch.testing.assert_close(ours.grad, eager.grad, rtol=1e-4, atol=1e-5)


def test_mode_and_options_are_accepted():
    compiled = torch.compile(torch.sin, backend="fxstack", options={"partitioner": "save_all"})
    x = torch.randn(5)
    torch.testing.assert_close(compiled(x), torch.sin(x))
