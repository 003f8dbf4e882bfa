"""Results of arguments whose dimensions lie in memory in another order: eager's values, and eager's strides."""

import math

import torch
import torch.nn.functional as F
from beside_eager import Programs

program = Programs()


def permuted(*shape):
    """A tensor of ``shape`` whose dimensions lie in memory in reverse."""
    memory = torch.linspace(-1, 2, math.prod(shape)).reshape(shape[::-1])
    return memory.permute(*reversed(range(len(shape))))


def laid_out(*results):
    return [(x, x.stride()) for x in results]


@program(graphs=1, breaks=0)
def batch_norm_of_a_transposed_batch(c):
    norm = torch.nn.BatchNorm1d(5)
    step = c(lambda x: norm(x.transpose(1, 2)).view(2, -1) * 2)
    x = torch.linspace(-1, 1, 70).reshape(2, 7, 5).requires_grad_()
    out = step(x)
    out.sin().sum().backward()
    return laid_out(out, x.grad), norm


@program(graphs=2, breaks=0, dynamic=True)
def masks_drawn_for_the_result_of_another_operator(c):
    f = c(lambda x: F.dropout(F.rrelu(x, training=True), 0.5))
    return laid_out(f(permuted(5, 4, 6)), f(permuted(5, 4, 6).requires_grad_()))


@program(graphs=1, breaks=0)
def elementwise_with_broadcasting(c):
    @c
    def f(x, y):
        return (
            torch.copysign(x, y),
            x // y,
            torch.logical_or(x, y),
            torch.logaddexp(x, y),
            torch.xlogy(y, x.abs()),
        )

    return laid_out(*f(permuted(5, 4, 6), torch.linspace(1, 2, 6)))


@program(graphs=1, breaks=0)
def filled_and_rolled(c):
    @c
    def f(x, at):
        return x.index_fill(1, at, 2.0), x.roll(1, 0), F.pad(x, (1, 1))

    return laid_out(*f(permuted(4, 3, 6)[..., ::2], torch.tensor([1])))


@program(graphs=1, breaks=0)
def indexed_by_permuted_indices(c):
    @c
    def f(x, at, rows):
        return x[..., at], (x + 1)[rows, :, rows], x[:, at * 1].exp(), torch.normal(x, 1.0)

    at = torch.arange(12).reshape(4, 3).t() % 3
    return laid_out(*f(permuted(4, 3, 6), at, at[:2]))


@program(graphs=1, breaks=0)
def a_result_that_is_none_where_its_fake_kernel_promises_a_tensor(c):
    rows, weight = (torch.linspace(-1, 1, 18).reshape(1, 3, 6), torch.linspace(0, 1, 108).reshape(18, 6))
    attend = torch._native_multi_head_attention
    f = c(lambda x, w: attend(x, x, x, 6, 2, w, w[:, 0], w[:6], w[:6, 0], None, False))
    return laid_out(f(rows, weight)[0]), f(rows, weight)[1]


def normalised(c, module, *arguments):
    """Training and evaluation, a dropout behind, and gradients."""
    drop = torch.nn.Dropout(0.5)

    @c
    def f(x):
        y = module(x)
        return y, drop(y), y.stride()

    module.double().train()
    results = []
    for seed, memory in enumerate(arguments):
        torch.manual_seed(seed)
        x = memory.double().requires_grad_()
        out, dropped, _ = found = f(x)
        (out.sin() + dropped).sum().backward()
        results.append((found, laid_out(*found[:2], x.grad)))
    module.eval()
    return results, f(arguments[0].double()), module


def permuted_batches(*shape, sizes=(2, 3)):
    """Batches whose items lie in memory the other way round, and one in gaps."""
    made = [permuted(size, *shape[::-1]).permute(0, *range(len(shape), 0, -1)) for size in sizes]
    return *made, permuted(4, *shape)[::2]


@program(breaks=0)
def batch_norm_of_sequences(c):
    return normalised(c, torch.nn.BatchNorm1d(5), *permuted_batches(5, 7))


@program(breaks=0)
def batch_norm_of_images(c):
    return normalised(c, torch.nn.BatchNorm2d(3), *permuted_batches(3, 4, 6))


@program(breaks=0)
def batch_norm_of_volumes(c):
    return normalised(c, torch.nn.BatchNorm3d(3), *permuted_batches(3, 4, 2, 5))


@program(breaks=0, dynamic=True)
def batch_norm_of_images_of_any_size(c):
    return normalised(c, torch.nn.BatchNorm2d(3), *permuted_batches(3, 4, 6, sizes=(2, 3, 5)))


@program(breaks=0)
def instance_norm_of_images(c):
    return normalised(c, torch.nn.InstanceNorm2d(3, affine=True), *permuted_batches(3, 4, 6))


@program(breaks=0)
def group_norm_of_sequences(c):
    return normalised(c, torch.nn.GroupNorm(2, 4), *permuted_batches(4, 6))


@program(breaks=0)
def layer_norm_of_sequences(c):
    return normalised(c, torch.nn.LayerNorm(6), *permuted_batches(4, 6))


test_equals_eager = program.tests()
