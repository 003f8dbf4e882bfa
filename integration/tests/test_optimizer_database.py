"""All optimizers of torch's own test database step as in eager, from one graph."""

import pytest
import torch
from torch.optim import lr_scheduler
from torch.testing._internal.common_optimizers import optim_db

import fxstack

DECIDED_BY_DATA = ("LBFGS", "SparseAdam")
"""They run in plain Python."""

CASES = [
    pytest.param(info.optim_cls, {**given.kwargs, **kind}, id=f"{info.optim_cls.__name__}-{k}-{place}")
    for info in optim_db
    if info.optim_cls.__name__ not in DECIDED_BY_DATA
    for place, given in list(enumerate(info.optim_inputs_func(device="cpu")))[::3]
    for k, kind in {
        "plain": {},
        **{
            name: {name: True}
            for name in ("foreach", "fused", "differentiable")
            if name in info.supported_impls
        },
    }.items()
]


class Graphs(list):
    def __call__(self, module, _inputs):
        self.append(module)
        return module


def parameters_after(cls, options, wrap, steps=3):
    """The parameters after some steps of an optimizer with these options."""
    torch.manual_seed(0)
    shapes = [(4, 3)] if cls.__name__ == "Muon" else [(4, 3), (3,)]
    params = [torch.randn(shape, requires_grad=True) for shape in shapes]
    if options.get("differentiable"):  # the steps are part of the history of the parameters
        params = [param.clone() for param in params]
    options = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in options.items()}
    optimizer = cls(params, **options)
    step = wrap(lambda: optimizer.step())
    for _ in range(steps):
        for param in params:
            param.grad = torch.randn(param.shape)
        step()
    return [param.detach() for param in params]


@pytest.mark.parametrize(("cls", "options"), CASES)
def test_steps_equal_eager(cls, options):
    graphs = Graphs()
    found = parameters_after(cls, options, lambda step: fxstack.compile(step, backend=graphs, fullgraph=True))
    torch.testing.assert_close(found, parameters_after(cls, options, lambda step: step))
    assert len(graphs) == 1, "the first step, which makes the state, runs in plain Python"


def test_after_torchs_compiler_has_marked_optimizers():
    parameters_after(torch.optim.Adam, {}, lambda step: torch.compile(step, backend="eager"), steps=1)
    graphs = Graphs()
    found = parameters_after(
        torch.optim.Adam, {}, lambda step: fxstack.compile(step, backend=graphs, fullgraph=True)
    )
    torch.testing.assert_close(found, parameters_after(torch.optim.Adam, {}, lambda step: step))
    assert len(graphs) == 1


SCHEDULERS = {
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 5),
    "exponential": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.9),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_of_a_tensor(name):
    def rates(wrap):
        param = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.Adam([param], lr=torch.tensor(0.1))
        scheduler = SCHEDULERS[name](optimizer)

        def step():
            optimizer.step()
            scheduler.step()

        step, found = wrap(step), []
        for turn in range(4):
            param.grad = torch.full((3,), float(turn))
            step()
            found += [param.detach().clone(), optimizer.param_groups[0]["lr"].clone()]
        return found

    torch.testing.assert_close(rates(lambda step: fxstack.compile(step, backend="eager")), rates(lambda s: s))


@pytest.mark.parametrize("cls", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_a_closure(cls):
    def steps(wrap):
        torch.manual_seed(0)
        module = torch.nn.Linear(3, 2)
        optimizer = cls(module.parameters(), lr=0.1)

        def step(x):
            def loss():
                optimizer.zero_grad()
                made = module(x).square().sum()
                made.backward()
                return made

            return optimizer.step(loss)

        step = wrap(step)
        return [step(torch.randn(4, 3)).detach() for _ in range(3)], list(module.parameters())

    torch.testing.assert_close(steps(lambda step: fxstack.compile(step, backend="eager")), steps(lambda s: s))
