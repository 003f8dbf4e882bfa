"""Changes of an input's size and strides in place, by the caller's tensor as eager leaves it."""

import pytest
import torch
from compare import check, compiled, dynamic, refuses
from test_semantics import leaf


def several(x):
    x.t_()
    x.unsqueeze_(0)
    return x.swapaxes_(0, 2) * 2


def values_before(x):
    x.add_(1)
    x.t_()
    x[0].mul_(2)
    return x, x[0], x.sum()


def values_after(x):
    x.transpose_(dim0=0, dim1=1)
    return x.add_(torch.arange(3.0)), x * 1


def views_around(x):
    before = x.view(-1)
    x.unsqueeze_(0)
    after = x[0]
    after.mul_(2)
    return before, after, x.detach(), before.data


def outside(x):
    x[1].as_strided_((2, 2), (1, 2), 1).mul_(3)
    return x.sum()


def part_of_it(x):
    x.as_strided_((2, 2), (1, 2), 1)
    x.mul_(3)
    return x.sum()


def and_back(x):
    x.t_()
    y = x * 2
    x.t_()
    return y, x


def without_grad(x):
    with torch.no_grad():
        x.t_()
    return x * 2


PROGRAMS = {
    "t_": lambda x: x.t_() * 2,
    "transpose_": lambda x: (x.transpose_(0, 1), x.sum())[1:],
    "squeeze_": lambda x: x.unsqueeze_(1).squeeze_() * 1,
    "squeeze_ dims": lambda x: x.unsqueeze_(0).unsqueeze_(0).squeeze_((0, 1)) * 1,
    "swapdims_": lambda x: x.swapdims_(0, 1).exp(),
    "as_strided_": lambda x: x.as_strided_((2, 3), (1, 2)) * 2,
    "ATen's": lambda x: torch.ops.aten.t_.default(x) * 2,
    "a view of it": lambda x: x[1:].t_().add_(1),
    "several": several,
    "values before": values_before,
    "values after": values_after,
    "views around": views_around,
    "part of it": part_of_it,
    "and back": and_back,
    "without grad": without_grad,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_plain(name):
    check(PROGRAMS[name], lambda: (torch.arange(12.0).view(3, 4),))


@pytest.mark.parametrize("name", ["t_", "several", "views around", "values before"])
def test_view(name):
    check(PROGRAMS[name], lambda: (torch.arange(20.0).view(5, 4)[1:4],))


@pytest.mark.parametrize("name", ["t_", "transpose_", "several", "and back"])
def test_with_gradient(name):
    def make():
        root = leaf(3, 4)
        x = root * 1.5
        x.root = root
        return (x,)

    check(PROGRAMS[name], make)


def test_beside_one_that_shares_memory():
    def program(x, y):
        x.t_()
        x.add_(1)
        return y.sum(), y[0], x

    def make():
        base = torch.arange(12.0).view(3, 4)
        return base, base[1:]

    check(program, make)


def test_leaf_raises_as_eager():
    refuses(PROGRAMS["t_"], lambda: (leaf(3, 4),), "leaf Variable that requires grad")


def test_gradient_that_eager_cannot_compute():
    make = lambda: (leaf(3, 4) * 1.5,)  # noqa: E731 - one line
    refuses(PROGRAMS["without grad"], make, "returned an invalid gradient")


def test_values_and_layout_of_what_has_a_gradient_are_refused():
    make = lambda: (leaf(3, 4) * 1.5,)  # noqa: E731 - one line
    refuses(PROGRAMS["values before"], make, "the values of input 'x0' and its size or strides")


def gradient_inside(x, w):
    x.requires_grad_()
    (slope,) = torch.autograd.grad((x * w).sin().sum(), x, create_graph=True)
    return (slope**2).sum()


def from_here_on(x, w):
    before = x * 2
    x.requires_grad_()
    return before, x * w


def values_then_leaf(x, w):
    x.mul_(2)
    return (x.requires_grad_() * w).sum(), x


def cut(x, w):
    before = x + w
    x.detach_()
    return before, x * w, x


def cut_and_change(x, w):
    x.add_(w)
    before = x * 2
    x.detach_()
    x.add_(1)
    return before, x * 3


def plain(*shape):
    return lambda: (leaf(*shape, grad=False), leaf(*shape))


def inner():
    root = leaf(3, 4)
    x = root * 1.5
    x.root = root
    return x, leaf(3, 4)


@pytest.mark.parametrize("fn", [gradient_inside, from_here_on, values_then_leaf])
def test_becomes_a_leaf(fn):
    check(fn, plain(3, 4))


def test_becomes_a_leaf_without_grad_mode():
    with torch.no_grad():
        check(from_here_on, plain(3, 4))


@pytest.mark.parametrize("fn", [cut, cut_and_change])
def test_is_cut_from_its_history(fn):
    check(fn, inner)


def test_is_no_leaf_after_an_error():
    def fail(graph, inputs):
        def raises(*args):
            raise ValueError("no")

        return raises

    seen = []
    function = compiled(
        from_here_on,
        plain(3, 4)(),
        compiler=fail,
        on_error=lambda error, eager, args: seen.append(args[0].requires_grad),
    )
    function(*plain(3, 4)())
    assert seen == [False]


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (cut, lambda: (leaf(3, 4), leaf(3, 4))),
        (lambda x, w: x.detach_() * w, plain(3, 4)),
        (lambda x, w: x.requires_grad_(False) * w, lambda: (leaf(3, 4), leaf(3, 4))),
        (lambda x, w: x.detach_().requires_grad_() * w, inner),
        (lambda x, w: x.t_().requires_grad_() * 2, plain(3, 4)),
    ],
)
def test_two_histories_are_refused(fn, make):
    refuses(fn, make, r"requires_grad_\(\) or detach_\(\) was called")


def test_no_operation():
    check(lambda x, w: x.requires_grad_(False) * w, plain(3, 4))
    check(lambda x, w: x * w.requires_grad_(), plain(3, 4))


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (lambda x, w: (x.requires_grad_(), x[0])[1], plain(3, 4)),
        (lambda x, w: (x.t_(), x[0])[1] + w[0, 0], inner),
        (lambda x, w: (x[0], x.detach_())[0], inner),
    ],
)
def test_views_of_it(fn, make):
    refuses(lambda x, w: (fn(x, w), x[1]), make, "an output is a view of an input")


def saved_afterwards(x, w):
    x.t_()
    return x * w.t()


def saved_beside_a_view(x, w):
    x.view(-1).unsqueeze_(0)
    return x * w


@pytest.mark.parametrize("fn", [saved_afterwards, saved_beside_a_view])
@pytest.mark.parametrize("make", [plain(3, 4), inner])
def test_saved_for_the_backward(fn, make):
    check(fn, make)


def test_versions_rise_through_views():
    def program(x):
        x[1:].t_()
        return x * 2

    check(program, lambda: (leaf(3, 4, grad=False),))


def test_second_derivatives_say_that_there_are_none():
    function = compiled(cut, inner())
    x, w = inner()
    out = function(x, w)[0]
    (grad,) = torch.autograd.grad(out.sum(), w, create_graph=True)
    with pytest.raises(RuntimeError, match="changes its inputs in place"):
        grad.sum().backward()


@pytest.mark.parametrize(
    "fn",
    [
        outside,
        lambda x: x[:, :2].as_strided((3,), (1,)) * 2,
        lambda x: x.as_strided(size=(20,), stride=(1,)) * 2,
    ],
)
def test_reaching_outside_of_the_tensor_is_refused(fn):
    make = lambda: (torch.arange(40.0)[12:24].view(3, 4),)  # noqa: E731 - one line
    refuses(fn, make, "reaches outside")


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.as_strided((2, 2), (1, 1)).add_(1),
        lambda x: x.clone().as_strided((3, 2, 2), (2, 1, 1)).mul_(2),
    ],
)
def test_changing_elements_that_share_memory_is_refused(fn):
    refuses(fn, lambda: (torch.arange(8.0),), "several elements share memory")


def test_given_twice():
    function = compiled(lambda x, y: (x.t_(), y * 1)[1:], (torch.ones(2, 3), torch.ones(2, 3)))
    x = torch.ones(2, 3)
    assert function(x, x)[0].shape == x.shape == (3, 2)


def test_given_twice_while_tracing_is_refused():
    def make():
        x = torch.ones(2, 3)
        return x, x

    refuses(lambda x, y: (x.t_(), y * 1)[1:], make, "is another input, too")


@pytest.mark.parametrize("name", ["t_", "several", "values before", "views around"])
def test_symbolic_sizes(name):
    check(PROGRAMS[name], lambda: (torch.arange(15.0).view(5, 3),), examples=dynamic)


def part(*shape):
    """A view of a tensor without history."""
    return torch.linspace(-1, 1, 2 * torch.Size(shape).numel()).view(2, *shape)[1]


def flag_of_a_view(x, w):
    x.requires_grad_()
    with torch.no_grad():
        seen = x[0]
    return x * w, torch.ones(2) * seen.requires_grad


def test_a_view_becomes_a_leaf():
    check(flag_of_a_view, lambda: (part(3, 4), leaf(3, 4)))
    check(from_here_on, lambda: (part(3, 4), leaf(3, 4)))


def gradient_through_another_view(x, w):
    x[0].add_(w.sum())
    return x.clamp_(-1, 1)


def test_a_view_with_a_gradient_that_nobody_has_read_is_refused_as_in_eager():
    make = lambda: (part(3, 4), leaf(3, 4))  # noqa: E731 - one line
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
        gradient_through_another_view(*make())
    refuses(gradient_through_another_view, make, "a leaf Variable that requires grad is being used")
    check(gradient_through_another_view, plain(3, 4))


@pytest.mark.parametrize("change", [lambda x: x.unsqueeze_(0), lambda x: x.mul_(2)])
def test_views_of_leaves_are_protected(change):
    def program(x):
        change(x[:, :1])
        return x * 2

    make = lambda: (leaf(3, 4)[1:],)  # noqa: E731 - one line
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        program(*make())
    refuses(program, make, "changes a view of a leaf")


def test_views_of_a_new_leaf_that_is_a_view():
    def program(x):
        made = x.unsqueeze(-1)
        with torch.no_grad():
            made.requires_grad_()
        return made.squeeze()

    assert program(part(3)).requires_grad
    refuses(program, lambda: (part(3),), "has a gradient of its own")


def turned_and_changed(x, w):
    y = x * 1
    view = y.view_as(y)
    view.t_()
    view.mul_(w)
    return y


def turned_and_changed_below(x, w):
    y = x * 1
    view = y.view_as(y)
    view.t_()
    y.mul_(w)
    return view * w


def turned_and_changed_behind(x, w):
    y = x * 1
    view = y.view_as(y)
    view.t_()
    y.detach().mul_(w)
    return view * w


def changed_and_turned(x, w):
    y = x * 1
    view = y[:2]
    view.mul_(w[0])
    view.t_()
    return view[0], y * w


@pytest.mark.parametrize("fn", [turned_and_changed, turned_and_changed_below, turned_and_changed_behind])
def test_views_that_change_their_layout_before_their_values_are_refused(fn):
    refuses(fn, lambda: (leaf(3, 3), leaf(3, 3, grad=False)), "changed afterwards")
    check(fn, lambda: (leaf(3, 3, grad=False), leaf(3, 3, grad=False)))


def test_views_that_change_their_layout_after_their_values():
    check(changed_and_turned, lambda: (leaf(3, 3), leaf(3, 3, grad=False)), tol=1e-6)


def test_a_view_of_what_becomes_a_leaf_is_another_input():
    def fn(x, y):
        x.requires_grad_()
        return x * 2, y * 3

    def make():
        x = leaf(3, 4, grad=False)
        return x, x[1:]

    check(fn, make)
    check(fn, lambda: (leaf(3, 4, grad=False), leaf(3, 4, grad=False)))


@torch.library.custom_op("fxstack_metamutation::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@noted.register_fake
def _(x):
    return torch.empty_like(x)


def takes_the_storage_of_its_clone(x):
    part = noted(x)[0] + x[0]
    row = x[1].view(-1)
    row.set_(row.clone())
    return part, row, x


def takes_another_storage(x):
    y = x * 2
    y.set_(noted(x) + 1)
    y.mul_(3)
    return y, y.view(-1), x


@pytest.mark.parametrize("fn", [takes_the_storage_of_its_clone, takes_another_storage])
def test_set_beside_custom_operators(fn):
    """These need torch's mode, which changes only what is inside of its wrapper. (Eager still calls the row a view.)"""
    x = torch.arange(6.0).view(2, 3)
    results = compiled(fn, [x])(x)
    torch.testing.assert_close(results, fn(x), check_stride=True)


@pytest.mark.parametrize("detached", [lambda t: t.data, lambda t: t.detach()])
def test_what_shares_memory_and_has_another_gradient_runs_in_eager(detached):
    def program(x):
        base = x.clone()
        other = detached(base)
        other.mul_(x)
        return base, other

    refuses(program, lambda: (torch.ones(3, requires_grad=True),), "has a gradient of its own")
