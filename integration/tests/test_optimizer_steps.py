"""Compiled steps of optimizers whose state, gradients, groups or rates change between steps: eager's values, few graphs."""

import copy

import pytest
import torch

import fxstack


class Graphs(list):
    def __call__(self, module, _inputs):
        self.append(module)
        return module


def parameters(count=6):
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(4, 3, generator=generator)) for _ in range(count)]


def set_gradients(params, number, skipped=()):
    generator = torch.Generator().manual_seed(number)
    for k, param in enumerate(params):
        param.grad = None if k in skipped else torch.randn(4, 3, generator=generator)


def adam(params, **options):
    groups = [
        {"params": params[:2]},
        {"params": params[2:4], "lr": 0.2, "betas": (0.5, 0.9)},
        {"params": params[4:], "weight_decay": 0.1, "amsgrad": True},
    ]
    return torch.optim.Adam(groups, lr=0.1, **options)


def plainly(optimizer, step, params):
    for number in range(6):
        set_gradients(params, number)
        step()


def with_missing_gradients(optimizer, step, params):
    for number, skipped in enumerate([{0, 5}, {0, 5}, {0}, {1}, set(), set()]):
        set_gradients(params, number, skipped)
        step()


def without_gradients_at_first(optimizer, step, params):
    step()
    plainly(optimizer, step, params)


def with_other_rates(optimizer, step, params):
    for number in range(6):
        for group in optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].mul_(0.5)
            else:
                group["lr"] *= 0.5
        set_gradients(params, number)
        step()


def with_loaded_state(optimizer, step, params):
    plainly(optimizer, step, params)
    saved = copy.deepcopy(optimizer.state_dict())
    plainly(optimizer, step, params)
    optimizer.load_state_dict(saved)
    plainly(optimizer, step, params)


def with_cleared_state(optimizer, step, params):
    plainly(optimizer, step, params)
    optimizer.state.clear()
    plainly(optimizer, step, params)


def with_an_added_group(optimizer, step, params):
    plainly(optimizer, step, params)
    more = parameters(2)
    optimizer.add_param_group({"params": more, "lr": 0.3})
    plainly(optimizer, step, params + more)


def with_hooks(optimizer, step, params):
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append(len(optimizer.state)))
    optimizer.register_step_post_hook(lambda *_: calls.append(-len(optimizer.state)))
    plainly(optimizer, step, params)
    params.append(torch.tensor(calls))


def with_a_scaler(optimizer, step, params):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer.step = step
    for number in range(6):
        set_gradients(params, number)
        scaler.scale(torch.ones(()))
        if number in {0, 3}:
            params[1].grad[0] = torch.inf  # the scaler skips this step
        scaler.step(optimizer)
        scaler.update()


def after_a_refused_gradient(optimizer, step, params):
    set_gradients(params, 0)
    params[4].grad = params[4].grad.to_sparse()
    with pytest.raises(RuntimeError):
        step()
    plainly(optimizer, step, params)


KINDS = {
    "plain": lambda params: adam(params, foreach=False),
    "foreach": lambda params: adam(params, foreach=True),
    "fused": lambda params: adam(params, fused=True),
    "tensor rate": lambda params: adam(params, foreach=False),
    "rmsprop": lambda params: torch.optim.RMSprop(params, momentum=0.5, centered=True, foreach=True),
}
OTHERS = {
    "momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "fused momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True),
    "fused adagrad": lambda params: torch.optim.Adagrad(params, lr=0.1, lr_decay=0.1, fused=True),
}
PROGRAMS = {
    plainly: 1,
    with_missing_gradients: 5,
    without_gradients_at_first: 3,
    with_other_rates: 2,
    with_loaded_state: 2,
    with_cleared_state: 2,
    with_an_added_group: 2,
    with_hooks: None,
    with_a_scaler: None,
    after_a_refused_gradient: None,
}


def run(kind, program, wrap):
    params = parameters()
    optimizer = {**KINDS, **OTHERS}[kind](params)
    if kind == "tensor rate":
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(group["lr"])
    program(optimizer, wrap(optimizer.step), params)
    states = [{name: value for name, value in optimizer.state[p].items()} for p in optimizer.state]
    return [p.detach() for p in params], states


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_steps(kind, program):
    graphs = Graphs()
    found = run(kind, program, lambda step: fxstack.compile(step, backend=graphs))
    expected = run(kind, program, lambda step: step)
    torch.testing.assert_close(found, expected)
    limit = PROGRAMS[program]
    assert limit is None or len(graphs) <= limit


@pytest.mark.parametrize("program", [plainly, with_other_rates])
@pytest.mark.parametrize("kind", ["foreach", "fused", *OTHERS])
def test_steps_of_kernels(kind, program):
    found = run(kind, program, fxstack.compile)
    torch.testing.assert_close(found, run(kind, program, lambda step: step))


@pytest.mark.parametrize("name", ["Adafactor", "NAdam", "ASGD", "RAdam"])
def test_steps_of_many_equal_parameters(name):
    """Equal parameters share loops of the host program where their statements repeat; one of another size stands between."""

    def step_of(wrap):
        params = parameters(26)
        params[12] = torch.nn.Parameter(params[12].detach()[:2].clone())
        optimizer = getattr(torch.optim, name)(params, lr=0.1)
        step = wrap(optimizer.step)
        generator = torch.Generator().manual_seed(1)
        for _ in range(3):
            for param in params:
                param.grad = torch.randn(param.shape, generator=generator)
            step()
        return [p.detach() for p in params]

    torch.testing.assert_close(step_of(fxstack.compile), step_of(lambda step: step))
