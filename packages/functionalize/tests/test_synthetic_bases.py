"""Inputs that share memory, one of which is changed in place."""

import pytest
import torch
from compare import check, compiled, dynamic, refuses
from test_semantics import leaf


def overlapping():
    base = torch.arange(12.0)
    return base[:8].view(2, 4), base[4:].view(4, 2)


def base_and_slice():
    base = torch.arange(12.0).view(3, 4)
    return base, base[1]


def base_and_prefix():
    base = torch.arange(12.0).view(3, 4)
    return base, base[:2]


def disjoint():
    base = torch.arange(12.0)
    return base[:4], base[4:8]


def twice():
    x = torch.arange(4.0)
    return x, x


def separate_counters():
    x = torch.arange(6.0)
    return x, x.data.view(2, 3)


PROGRAMS = {
    "change first": lambda x, y: (x.add_(1), y.sum())[1:],
    "change second": lambda x, y: (y.mul_(2), x * 1)[1:],
    "change both": lambda x, y: (x.add_(1), y.mul_(2), x.sum() + y.sum())[2:],
    "return all": lambda x, y: (x.add_(1), y, x[0], y.sum(), y.t() if y.dim() == 2 else y[1:]),
    "change a view": lambda x, y: (x[0].add_(5), y.view(-1) * 1)[1:],
}
MAKERS = [overlapping, base_and_slice, disjoint, twice, separate_counters]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("make", MAKERS)
def test_shared_inputs(name, make):
    check(PROGRAMS[name], make)


def parts(*bounds):
    base = torch.arange(12.0)
    return tuple(base[start:stop] for start, stop in bounds)


def change_two(a, b, c):
    a.add_(1)
    c.mul_(5)
    return b.sum()


def change_two_pairs(a, b, c, d):
    a.add_(1)
    d.mul_(5)
    return b.sum() + c.sum()


def test_all_that_is_changed_in_a_storage_is_one_base():
    check(change_two, lambda: parts((0, 4), (2, 6), (8, 12)))
    check(change_two_pairs, lambda: parts((0, 4), (2, 5), (6, 9), (8, 12)))


def test_a_changed_input_that_comes_into_the_storage_runs_in_eager():
    function = compiled(change_two, (*parts((0, 4), (2, 6)), torch.arange(4.0)))
    a, b, c = parts((0, 4), (2, 6), (8, 12))
    assert function(a, b, c) == 2 + 3 + 4 + 5 + 2
    assert a.tolist() == [1, 2, 3, 4]
    assert c.tolist() == [40, 45, 50, 55]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("make", [twice, base_and_prefix])
def test_shared_inputs_of_symbolic_sizes(name, make):
    check(PROGRAMS[name], make, examples=dynamic)


def test_inputs_that_begin_to_share_run_in_eager():
    fn = PROGRAMS["change first"]
    function = compiled(fn, (torch.arange(4.0), torch.arange(4.0)))
    x, y = twice()
    assert function(x, y)[0] == torch.arange(1.0, 5).sum()
    a, b = torch.arange(4.0), torch.arange(4.0)
    assert function(a, b)[0] == b.sum()


def test_inputs_that_stop_sharing_run_in_eager():
    function = compiled(PROGRAMS["change first"], overlapping())
    x, y = (t.clone() for t in overlapping())
    expected = y.sum()
    assert function(x, y)[0] == expected


def rooted(*views):
    """Views of one tensor with a history."""

    def make():
        root = torch.arange(12.0).view(3, 4).mul_(0.1).requires_grad_()
        whole = root * 1.5
        made = tuple(view(whole) for view in views)
        for each in made:
            each.root = root
        return made

    return make


ROOTED = {
    "row": rooted(lambda x: x, lambda x: x[0]),
    "row first": rooted(lambda x: x[0], lambda x: x),
    "transposed": rooted(lambda x: x, lambda x: x.t()),
    "twice": rooted(lambda x: x, lambda x: x),
    "alias": rooted(lambda x: x, lambda x: x.view_as(x)),
    "flat": rooted(lambda x: x, lambda x: x.view(-1)),
    "other shape": rooted(lambda x: x, lambda x: x.view(2, 6)[:, 1:4]),
    "steps": rooted(lambda x: x, lambda x: x[::2, 1::2].t()),
    "overlapping": rooted(lambda x: x[:, :3], lambda x: x[:, 1:]),
    "disjoint": rooted(lambda x: x[:, :2], lambda x: x[:, 2:]),
    "diagonal": rooted(lambda x: x.diagonal(), lambda x: x[1]),
    "added": rooted(lambda x: x[:, None], lambda x: x[1:]),
}
WITH_GRADIENTS = PROGRAMS | {
    "change a view": lambda x, y: (x[0].add_(5), y.reshape(-1) * 1)[1:],
    "hidden change": lambda x, y: (x.detach().add_(1), y * 2, y.detach())[1:],
    "return the changed": lambda x, y: (x.mul_(y.sum().detach()), y[None], x.data)[1:],
    "keep what was": lambda x, y: (x * 2, x.add_(y.sum()), y * 3),
}


@pytest.mark.parametrize("name", WITH_GRADIENTS)
@pytest.mark.parametrize("how", ROOTED)
def test_shared_inputs_with_gradients(how, name):
    fn, make = WITH_GRADIENTS[name], ROOTED[how]
    check(fn, make, tol=1e-5)


ONE_IMAGE = {
    "images": lambda x: (x[:1], x[1:2]),
    "an image and all": lambda x: (x[1:2], x),
    "a channel": lambda x: (x[:, 1:2], x[:1]),
    "a row": lambda x: (x[:1, :, 1:2], x[1:2]),
    "added": lambda x: (x[0].unsqueeze(0), x[1:2]),
    "of one image": lambda x: (x[:1].view(x[:1].shape), x[:1]),
    "alias": lambda x: (torch.ops.aten.alias(x[:1]), x[:1]),
}


@pytest.mark.parametrize("name", ["change first", "keep what was", "return all"])
@pytest.mark.parametrize("how", ONE_IMAGE)
def test_shared_inputs_keep_the_strides_of_dimensions_of_one_element(how, name):
    def make():
        root = torch.arange(48.0).view(2, 3, 2, 4).mul_(0.1).requires_grad_()
        made = ONE_IMAGE[how]((root * 1.5).permute(0, 3, 1, 2))
        for each in made:
            each.root = root
        return made

    change = {
        "change first": lambda x, y: (x.add_(1), x.clone(), y.clone())[1:],
        "keep what was": lambda x, y: (x.relu(), x.mul_(2), y * 3, torch.max_pool2d(y, 1)),
        "return all": lambda x, y: (x.add_(1), y[:, :1], x[..., None], y.cos()),
    }
    check(change[name], make, tol=1e-5)


def test_one_of_the_shared_inputs_is_expanded():
    make = rooted(lambda x: x, lambda x: x.unsqueeze(0).expand(2, 3, 4))
    check(PROGRAMS["change first"], make, tol=1e-5)
    check(WITH_GRADIENTS["keep what was"], make, tol=1e-5)
    refuses(PROGRAMS["change second"], make, "several elements share memory")


VIEWS = {
    "row": lambda x: x[1],
    "rest": lambda x: x[1:],
    "column": lambda x: x[:, 1],
    "transposed": lambda x: x.t(),
    "alias": lambda x: x.view_as(x),
    "added": lambda x: x[:, None],
}


@pytest.mark.parametrize("name", WITH_GRADIENTS)
@pytest.mark.parametrize("how", VIEWS)
def test_shared_inputs_of_symbolic_sizes_with_gradients(how, name):
    def fakes(inputs):
        (whole,) = dynamic(inputs[:1])
        return [whole, VIEWS[how](whole)]

    check(WITH_GRADIENTS[name], rooted(lambda x: x, VIEWS[how]), tol=1e-5, examples=fakes)


def changed_under_no_grad(x, y):
    with torch.no_grad():
        y.add_(1)
    return x.sum()


def test_a_shared_leaf_is_changed_under_no_grad():
    def make():
        x = leaf(3, 4)
        return x, x[1]

    check(changed_under_no_grad, make)


def test_a_disjoint_relative_is_changed_under_no_grad():
    def run(x, y):
        changed_under_no_grad(x, y)
        return x.sin()

    check(run, ROOTED["disjoint"])


def test_shared_inputs_gain_a_history():
    def make():
        x = torch.arange(12.0).view(3, 4)
        return x, x[1], leaf(4)

    check(lambda x, y, w: (x[0].mul_(w), y * 1)[1:], make)
    check(lambda x, y, w: (y.mul_(w), x.sum())[1:], make)


def test_views_of_other_tensors_run_in_eager():
    function = compiled(PROGRAMS["change first"], ROOTED["row"]())
    x = leaf(3, 4) * 1
    for given in [(x, x.detach()[0]), (x, x.clone()[0]), (x.view_as(x), x[0])]:
        (found,) = function(*given)
        assert found == given[1].sum()
        assert found.requires_grad is given[1].requires_grad
    with pytest.raises(RuntimeError, match="returns multiple views"):
        function(x, x.unbind()[0])


def detached():
    x = leaf(3, 4) * 1
    return x, x.detach()[0]


def of_a_constant():
    x = torch.ones(3, 4)[1:].requires_grad_()
    return x.view_as(x), x[0]


def test_shared_inputs_without_one_root_are_refused():
    refuses(PROGRAMS["change first"], detached, "not views of one tensor")
    refuses(PROGRAMS["change first"], of_a_constant, "share memory|custom Function")
