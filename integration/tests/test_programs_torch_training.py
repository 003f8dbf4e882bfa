"""Training as people write it, compiled: optimizers, gradients taken inside, checkpoints, hooks."""

import subprocess
import sys

import torch
from beside_eager import Programs, attempt
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fxstack_capture

program = Programs()


def network():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def steps(c, optimizer_of, count=3):
    """Some steps of a small model, the optimizer's ``step`` compiled."""
    model = network()
    optimizer = optimizer_of(model.parameters())
    step = c(optimizer.step)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(5, 4)).pow(2).sum().backward()
        step()
    state = [optimizer.state[p] for p in model.parameters()]
    return model, state, optimizer.param_groups[0]["lr"]


@program(breaks=0)
def sgd_with_momentum(c):
    return steps(c, lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True))


@program(breaks=0)
def adamw_computes_bias_corrections_in_double(c):
    return steps(c, lambda ps: torch.optim.AdamW(ps, lr=0.1, amsgrad=True))


@program(breaks=0)
def adam_foreach(c):
    return steps(c, lambda ps: torch.optim.Adam(ps, lr=0.1, foreach=True))


@program(breaks=0)
def sgd_with_learning_rate_in_a_tensor(c):
    return steps(c, lambda ps: torch.optim.SGD(ps, lr=torch.tensor(0.1)))


@program(breaks=0)
def sgd_foreach_with_learning_rate_in_a_tensor(c):
    return steps(c, lambda ps: torch.optim.SGD(ps, lr=torch.tensor(0.1), foreach=True))


@program(breaks=0)
def rmsprop_centered(c):
    return steps(c, lambda ps: torch.optim.RMSprop(ps, centered=True, momentum=0.5))


@program()
def radam_decides_by_its_step_count(c):
    return steps(c, lambda ps: torch.optim.RAdam(ps, lr=0.1), count=7)


@program(breaks=0)
def scheduler_changes_the_learning_rate(c):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step = c(optimizer.step)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(5, 4)).sum().backward()
        step()
        scheduler.step()
    return model, optimizer.param_groups[0]["lr"]


@program(breaks=0)
def whole_training_step(c):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    @c
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(torch.randn(5, 4), torch.randn(5, 2)) for _ in range(3)]
    return losses, model


@program(breaks=0)
def profiler_regions(c):
    @c
    def f(x):
        with torch.profiler.record_function("region"):
            return x.sin()

    return f(torch.ones(3))


@program(breaks=1)
def graph_break_inside_a_profiler_region(c):
    @c
    def f(x):
        with torch.profiler.record_function("region"):
            y = x.sin()
            fxstack_capture.graph_break()
            return y + 1

    return f(torch.ones(3))


# --- gradients taken inside ------------------------------------------------------------------------


def leaf(*size):
    return torch.randn(*size, requires_grad=True)


@program(graphs=2, breaks=0)
def backward_inside_accumulates(c):
    model = nn.Linear(3, 2)

    @c
    def f(x):
        for i in range(2):
            (model(x + i).pow(2).sum() / 3).backward()

    f(torch.randn(4, 3))
    before = model.weight.grad
    f(torch.randn(4, 3))
    return model, before is model.weight.grad


@program(graphs=1, breaks=0)
def loss_that_was_differentiated_cannot_be_again(c):
    model = nn.Linear(3, 2)

    @c
    def f(x):
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss

    loss = f(torch.randn(4, 3))
    return attempt(loss.backward), loss.requires_grad, loss.is_leaf, model


@program(graphs=1, breaks=0)
def loss_that_was_retained_can_be_differentiated_again(c):
    model = nn.Linear(3, 2)

    @c
    def f(x):
        loss = model(x).pow(2).sum()
        loss.backward(retain_graph=True)
        return loss

    f(torch.randn(4, 3)).backward()
    return model


@program(graphs=1, breaks=0)
def gradients_of_two_leaves_share_no_memory(c):
    x, y = leaf(3), leaf(3)
    c(lambda: (x + y).sum().backward())()
    x.grad.add_(1)
    return x, y


@program(graphs=1, breaks=0)
def gradients_have_the_layout_of_their_leaves(c):
    x, w = leaf(3, 4), torch.randn(4, 3).t().requires_grad_()
    e = torch.randn(3, 1).expand(3, 4).requires_grad_()
    c(lambda: (x * w * e).t().sum().backward())()
    return [(t.grad, t.grad.stride()) for t in (x, w, e)]


@program()
def backward_needs_a_scalar(c):
    x = leaf(3)
    c(lambda g: (x * 2).backward(g))(torch.randn(3))
    return x, attempt(c(lambda: (x * 2).backward()))


@program()
def hooks_of_leaves_run(c):
    x, seen = leaf(3), []
    f = c(lambda: (x * 2).sum().backward())
    f()
    for add in (
        lambda: x.register_hook(lambda g: g * 10),
        lambda: x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone())),
    ):
        handle = add()
        f()
        handle.remove()
        f()
    return x, seen


@program()
def history_outside_of_the_graph(c):
    w = leaf(3)
    c(lambda y: (y * 2).sum().backward())(w * 3)
    c(lambda loss: loss.backward())((w * 3).sum())
    return w


@program()
def gradient_of_what_is_not_used(c):
    x, y = leaf(3), leaf(3)
    lenient = c(lambda: torch.autograd.grad((x * 2).sum(), [x, y], allow_unused=True))
    strict = c(lambda: torch.autograd.grad((x * 2).sum(), [x, y]))
    return lenient(), attempt(strict)


@program(graphs=1, breaks=0)
def gradient_penalty(c):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    @c
    def f(x):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (slope.norm(dim=1) - 1).pow(2).mean()

    f(torch.randn(5, 3)).backward()
    return model


@program(graphs=1, breaks=0)
def gradient_penalty_outside(c):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(c(model)(x).sum(), x, create_graph=True)
    (slope.norm(dim=1) - 1).pow(2).mean().backward()
    return model, x


@program(breaks=2)  # the gradient leads out of its graph, too
def gradient_penalty_after_a_break(c):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3, requires_grad=True)

    @c
    def f(x):
        y = model(x).sum()
        fxstack_capture.graph_break()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        return (slope.norm(dim=1) - 1).pow(2).mean()

    f(x).backward()
    return model, x


@program(graphs=1, breaks=0)
def hessian_vector_product_outside(c):
    w = leaf(4)
    loss = c(lambda w: (w.sin() * w).sum() + w.prod())
    (g,) = torch.autograd.grad(loss(w), w, create_graph=True)
    return torch.autograd.grad(g, w, torch.arange(4.0))


@program(graphs=1, breaks=0)
def gradients_through_steps_of_descent(c):
    w = leaf(3)

    @c
    def f(x):
        fast = w
        for _ in range(2):
            (g,) = torch.autograd.grad(((fast * x) ** 2).sum(), fast, create_graph=True)
            fast = fast - 0.1 * g
        return ((fast * x) ** 2).sum()

    f(torch.randn(3)).backward()
    return w


@program(graphs=1, breaks=0)
def gradient_cleared_and_taken_again(c):
    x = leaf(3)

    @c
    def f():
        (x * 2).sum().backward()
        first = x.grad
        x.grad = None
        (x * 3).sum().backward()
        return first, x.grad + 1

    return f(), x


@program(breaks=0)
def descent_by_hand(c):
    x = leaf(3)

    @c
    def f():
        (x * x).sum().backward()
        x.grad.mul_(0.5)
        with torch.no_grad():
            x.sub_(x.grad)

    f()
    f()
    return x


@program(breaks=0)
def optimizer_with_a_closure(c):
    w = leaf(3)
    optimizer = torch.optim.SGD([w], lr=0.1)

    @c
    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = (w * x).pow(2).sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    return [step(torch.randn(3)) for _ in range(3)], w


@program(breaks=0)
def clipped_gradients(c):
    model = network()

    @c
    def f(x):
        model(x).pow(2).sum().backward()
        return nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    return f(torch.randn(5, 4)), model


@program(breaks=0)
def hooks_of_computed_tensors_are_compiled(c):
    scale = torch.tensor([1.0, 2.0, 3.0])

    def f(x, scale):
        y = x * 2
        z = y + 1
        y.register_hook(lambda g: g * scale + y)
        y.register_hook(lambda g: g.clamp(max=9.0))
        return (z * y).sum()

    x = torch.randn(3, requires_grad=True)
    compiled = c(f)
    for _ in range(2):
        compiled(x, scale).backward()
    (first,) = torch.autograd.grad(compiled(x, scale), x, create_graph=True)
    return x.grad, first.detach(), torch.autograd.grad(first.sum(), x)


# --- checkpoints -----------------------------------------------------------------------------------


def checkpointed(c, model, **options):
    f = c(lambda x: checkpoint(model, x, **options).sum())
    x = leaf(5, 4)
    f(x).backward()
    f(x).backward()
    with torch.no_grad():
        f(x)
    return x, model


@program(breaks=0)
def checkpoint_in_the_graph(c):
    return checkpointed(c, network(), use_reentrant=False)


@program(breaks=0)
def checkpoint_of_dropout(c):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    return checkpointed(c, model, use_reentrant=False)


@program()
def checkpoint_reentrant(c):
    return checkpointed(c, network(), use_reentrant=True)


@program()
def checkpoint_with_fresh_random_numbers(c):
    return checkpointed(c, network(), use_reentrant=False, preserve_rng_state=False)


@program()
def loss_scaler(c):
    model, scaler = network(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @c
    def step(x):
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    for _ in range(3):
        step(torch.randn(2, 4))
    return model, scaler.get_scale()


def lbfgs_steps(c, count, **options):
    # In double precision: its steps enlarge differences of rounding a thousandfold.
    model, x = network().double(), torch.randn(5, 4, dtype=torch.float64)
    optimizer = torch.optim.LBFGS(model.parameters(), **options)

    def closure():
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss

    step = c(lambda: optimizer.step(closure))
    return [step() for _ in range(count)], model


@program()
def lbfgs_with_a_closure(c):
    return lbfgs_steps(c, 5, max_iter=4)


@program()
def lbfgs_that_searches_along_lines(c):
    return lbfgs_steps(c, 4, max_iter=3, line_search_fn="strong_wolfe")


@program(breaks=0)
def maml_adapts_weights_that_are_no_leaves(c):
    model = network()
    classify = c(
        lambda weights, x: F.cross_entropy(
            torch.func.functional_call(model, weights, x), F.one_hot(x.long()[:, 0].relu() % 2, 2).float()
        )
    )
    weights = dict(model.named_parameters())
    for _ in range(2):
        loss = classify(weights, torch.randn(5, 4))
        gradients = torch.autograd.grad(loss, [*weights.values()], create_graph=True)
        weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), gradients, strict=True)}
    classify(weights, torch.randn(5, 4)).backward()
    return model


test_equals_eager = program.tests()

LBFGS = """
import torch, fxstack
model, x = torch.nn.Linear(4, 1), torch.randn(5, 4)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
def closure():
    optimizer.zero_grad()
    loss = model(x).pow(2).sum()
    loss.backward()
    return loss
step = fxstack.compile(lambda: optimizer.step(closure))
for _ in range(4):
    step()
print(fxstack.compile_log(step).graph_count)
"""


def test_closures_of_lbfgs_are_compiled_and_its_steps_are_not():
    """In a process of its own: once ``torch.compile`` has run, torch marks LBFGS as not to be compiled."""
    done = subprocess.run([sys.executable, "-c", LBFGS], capture_output=True, text=True, check=True)
    # Without gradients there first, and with.
    assert done.stdout.strip() == "2"
