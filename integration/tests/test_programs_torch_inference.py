"""``torch.inference_mode`` in compiled code and around it."""

import torch
from beside_eager import Programs, attempt
from torch import nn

program = Programs()
X = torch.arange(4.0) + 1


def leaf():
    return (torch.arange(4.0) + 1).requires_grad_()


def kinds(*tensors):
    """What tells an inference tensor from an ordinary one, and the modes that are on."""
    modes = (torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled())
    return [tensor.is_inference() for tensor in tensors], modes


@program(graphs=2, breaks=0)
def a_part_of_a_function(c):
    @c
    def f(x):
        before = x * 2
        with torch.inference_mode():
            inside = before + 1
            told = inside.is_inference(), before.is_inference(), torch.is_inference_mode_enabled()
        return before, inside, told, inside.view(2, 2), torch.is_grad_enabled()

    found = f(leaf()), f(X)
    found[0][0].sum().backward()
    return found, [kinds(*r[:2], r[3]) for r in found]


@program(backend="aot_eager", breaks=0)
def decorated_functions(c):
    inside = torch.inference_mode(lambda x: x * 2)
    outside = torch.inference_mode(mode=False)(lambda x: (x * 2, torch.is_grad_enabled()))
    f = c(lambda x: (inside(x), outside(x)[0], x + 1, outside(x)[1]))
    found = f(leaf())
    return found, kinds(*found[:3])


@program(graphs=1, breaks=0)
def statistics_in_a_training_step(c):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 2))

    @c
    def step(x):
        out = model(x)
        with torch.inference_mode():
            model.last = (out.detach() > 0).float().mean()
            probabilities = out.softmax(-1)
        return out.sum(), probabilities

    for _ in range(2):
        loss, probabilities = step(torch.ones(3, 4))
        loss.backward()
    return loss, probabilities, model, model.last, kinds(loss, probabilities, model.last)


@program(backend="aot_eager", graphs=2)
def a_break_inside(c):
    def inner(x):
        with torch.inference_mode():
            z = x + 1
            if z.sum() > 0:
                z = z * 2
            with torch.no_grad(), torch.inference_mode(mode=False):
                t = x * 5
                if t.sum() > 0:
                    t = t * 2
                seen = torch.is_grad_enabled()
        return z, t, seen

    @c
    def f(x):
        with torch.no_grad():
            z, t, seen = inner(x * 2)
        return z, t, x * t, seen

    found = [f(leaf()) for _ in range(2)]
    return found, [kinds(*r[:3]) for r in found]


@program(backend="aot_eager", graphs=1, breaks=0)
def an_exception_inside(c):
    @c
    def f(x):
        try:
            with torch.inference_mode():
                z = x + 1
                raise ValueError("inside")
        except ValueError:
            seen = torch.is_grad_enabled()
        return z, x * 2, seen

    found = f(leaf())
    return found, kinds(*found[:2])


@program(backend="aot_eager", graphs=1)
def an_error_of_the_graph_inside(c):
    @c
    def f(x, i):
        with torch.inference_mode():
            return x[i] + 1

    good, bad = torch.tensor([1]), torch.tensor([9])
    return attempt(f, leaf(), good), attempt(f, leaf(), bad), kinds()


@program(backend="aot_eager", breaks=0)
def views_of_ordinary_tensors(c):
    @c
    def f(x):
        y = x * 1
        with torch.inference_mode():
            return y, y[1:], x[1:]

    x = leaf()
    y, of_y, of_x = f(x)
    errors = [attempt(view.add_, 1) for view in (of_y, of_x)]
    return y, of_y, of_x, errors, kinds(y, of_y, of_x)


@program(backend="aot_eager", graphs=1, breaks=0)
def writes_inside(c):
    @c
    def f(x):
        y = x * 1
        with torch.inference_mode():
            y.mul_(2)
            z = y + 1
            z.add_(1)
            x.add_(5)
        return y, z

    x = leaf()
    before = x._version
    y, z = f(x)
    y.sum().backward()
    return x, y, z, x._version - before, kinds(y, z), attempt(z.add_, 1)


@program(backend="aot_eager", graphs=1, breaks=0)
def results_that_share_memory(c):
    kept = []

    @c
    def f(x):
        with torch.inference_mode():
            kept.append(x.sin())
            kept.append(kept[-1][1:])
            kept.append((x * 2j).conj())
        return x * 2

    return f(leaf()), kept[:2], kept[2].is_conj(), kept[2].clone(), kinds(*kept)


@program(backend="aot_eager")
def errors_of_inference_tensors(c):
    def saved(x, w):
        with torch.inference_mode():
            z = x + 1
        return z * w

    def written(x, _):
        with torch.inference_mode():
            z = x + 1
        return z.add_(1)

    return [attempt(c(f), X, leaf()) for f in (saved, written)]


@program(backend="aot_eager")
def leaves_made_inside(c):
    @c
    def f(x):
        with torch.inference_mode():
            made = torch.ones(2, requires_grad=True)
            parameter = nn.Linear(4, 2).weight
            data = x.data
        return made, parameter, data, x * 2

    found = f(leaf())
    return found, kinds(*found)


@program(backend="aot_eager")
def inference_mode_left_within_it(c):
    @c
    def f(x):
        with torch.inference_mode(mode=False):
            inside = x * 2
        return inside, x + 1

    with torch.inference_mode():
        made = leaf()
        found = f(X), f(made)
    return found, [kinds(*r) for r in found]


@program(backend="aot_eager", graphs=3, breaks=0)
def inference_tensors_as_arguments(c):
    with torch.inference_mode():
        z, w = X + 1, torch.ones(4, 4)
    f = c(lambda z, w: ((z @ w).relu(), z.view(2, 2), z.dim()))
    g = c(lambda view, z: view.mul_(3) + z[1:])
    found = [f(z, w)]
    with torch.inference_mode():
        found.append(f(z, w))
        mixed = g(z[1:], z)
    return found, mixed, z, kinds(*found[0][:2], *found[1][:2], mixed)


@program(backend="aot_eager")
def a_region_that_outlives_the_call(c):
    kept = []

    @c
    def enter(x):
        region = torch.inference_mode()
        region.__enter__()
        kept.append(region)
        return x * 2

    @c
    def leave(x):
        inside = x * 3
        kept.pop().__exit__(None, None, None)
        return inside, x * 4

    x = leaf()
    first, on = enter(x), kinds()
    return first, on, leave(x), kinds(first)


@program(graphs=1, breaks=0)
def a_cache_that_is_an_inference_tensor(c):
    @c
    def f(cache, view, new):
        view.add_(new)
        cache[:, :1].mul_(2)
        return (cache * cache).sum(-1), view[0]

    with torch.inference_mode():
        cache = torch.zeros(4, 4)
        found = [f(cache, cache[1:], torch.ones(4) * i) for i in range(2)]
    return found, cache, kinds(cache, *found[0])


@program(graphs=2, breaks=0)
def gradients_are_enabled_within_inference_mode(c):
    @c
    def f(w):
        with torch.enable_grad():
            return w * 2, w[1:], torch.is_grad_enabled()

    ordinary = leaf()
    with torch.inference_mode():
        found = f(ordinary), f(leaf())
    return found, [kinds(*r[:2]) for r in found]


test_programs = program.tests()
