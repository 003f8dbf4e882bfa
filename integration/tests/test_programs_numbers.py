"""Numbers that change or come out of tensors: as indices, in assertions, as sizes, and what stands for dtypes."""

import random
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from beside_eager import Programs, attempt

program = Programs()
SCALARS = {"capture_scalar_outputs": True}


def square(n=4):
    return torch.arange(float(n * n)).reshape(n, n)


@program(graphs=1, breaks=0, options=SCALARS)
def an_index_out_of_a_tensor(c):
    f = c(
        lambda x, i: (n := i.item(), x[n] + 1, x[n, 1:] + 1, x[:, n] * 2, x[..., n, None] * 2, -x[None, n])[
            1:
        ]
    )
    return [f(square(), torch.tensor(i)) for i in (1, 3, 0, -1)]


@program(graphs=1, breaks=0, options=SCALARS)
def an_index_out_of_a_tensor_and_out_of_range(c):
    f = c(lambda x, i: x[i.item()] + 1)
    return f(square(), torch.tensor(1)), attempt(f, square(), torch.tensor(9))


@program(graphs=1, breaks=0, options=SCALARS)
def tensors_as_indices(c):
    @c
    def f(x, i):
        x[i[:1] :, 1] = 0.5
        x[i[0]] += 2
        return x[i[0] :] + 1, x[: i[0], i[0]] * 2, x[..., -i[0] :].sum(), x[i[0], None, 1:] * 3

    made = [square() for _ in range(3)]
    return [f(x, torch.tensor([i])) for x, i in zip(made, (1, 3, 2))], made


@program(graphs=5, breaks=0, options={**SCALARS, "capture_dynamic_output_shape_ops": True})
def sizes_out_of_tensors_and_gradients(c):
    x = square().requires_grad_()
    n, bounds = torch.tensor(2), torch.tensor([1, 2])
    warnings.simplefilter("error")  # a graph that cannot be compiled warns, and runs in eager torch
    found = [
        c(lambda x: x[(x > 3).nonzero(as_tuple=True)] * x.sum())(x),
        c(lambda x, b: x.narrow(0, b[0].item(), b[1].item()).exp())(x / 16, bounds),
        c(lambda x, n: F.pad(x, (0, n.item(), 1, 0), value=2.0) * 3)(x, n),
        c(lambda x, n: x[: n.item()].softmax(-1) @ x[:, : n.item()])(x, n),
        c(lambda x, b: torch.stack([p.sin().sum(0) for p in x.split(b.tolist())]))(x, torch.tensor([3, 1])),
    ]
    sum(f.sin().sum() for f in found).backward()
    return found, x.grad


def where_its_own(x, m):
    y = x * 1
    y[m] = x[m].exp()
    return y


def where_anothers(x, m):
    y = x * 1
    y[x > 3] = x[m].exp()
    return y


OF_A_MASK = [
    lambda x, m: x[m].cumsum(0),
    lambda x, m: x[m.any(1)].logcumsumexp(1),
    lambda x, m: x[m][:, None] @ x[m][None],
    lambda x, m: F.linear(x[m.any(1)], x, x[0]),
    lambda x, m: (x[m].view(-1), x[m][None] * 2),
    where_its_own,
    where_anothers,
]


@program(graphs=7, breaks=0, options={"capture_dynamic_output_shape_ops": True})
def gradients_of_what_a_mask_reads(c):
    warnings.simplefilter("error")  # a graph that cannot be compiled warns, and runs in eager torch
    x = (square() / 4).requires_grad_()
    made = []
    for function in map(c, OF_A_MASK):
        for mask in (x > 3, x == 1, x > 9, x >= 0):
            result = attempt(function, x, mask)
            made.append(result)
            if isinstance(result, torch.Tensor):
                scale = torch.arange(1.0, result.numel() + 1).view(result.shape)
                made += torch.autograd.grad((result * scale).sum(), x)
    return made


@program(graphs=1, breaks=0, dynamic=True)
def a_graph_of_sizes_alone(c):
    @c
    def f(x):
        rows, columns = x.shape
        grid = torch.zeros(2, 3, 2 * ((rows - 1) // 3) + 2, columns)
        return F.interpolate(grid + rows, scale_factor=2), torch.arange(1, columns * 7, 3)

    warnings.simplefilter("error")
    return f(square(7)), f(square(9))


@program(breaks=0)
def an_index_that_changes(c):
    @c
    def f(x, i):
        before = x[i] * 2
        x[i, 1:] = 5.0
        x[:, i] += 1
        return before, x[i, None, torch.tensor([0, 1])], x[i - 1 :, i], x[i, i]

    found = []
    for i in (2, 1, 3, 0, -1, 9):
        x = square()
        found += [attempt(f, x, i), x]
    return found


@program(breaks=0)
def a_store_to_a_leaf(c):
    f = c(lambda x, i: x.__setitem__(i, 1.0))
    return [attempt(f, square().requires_grad_(), i) for i in (1, 2)]


@program(graphs=2, breaks=0)
def an_index_that_changes_is_compiled_twice(c):
    f = c(lambda x, i: x[i] * 2)
    return [f(square(9), i) for i in (2, 3, 7, 5)]


@program(breaks=0)
def gradients_through_an_index_that_changes(c):
    f = c(lambda x, i: (x[i] ** 2).sum() + x[1:, i].sum())
    found = []
    for i in (2, 3, 0):
        x = square().requires_grad_()
        f(x, i).backward()
        found.append(x.grad)
    return found


def checked(c, check, good, bad):
    """A number that fulfils what the program demands, and one that does not."""
    f = c(lambda x, n: (torch._check(check(k := n.item(), x)), x + k)[1])
    x = square(3)
    return f(x, torch.tensor(good)), attempt(f, x, torch.tensor(bad))[0]


@program(graphs=1, breaks=0, options=SCALARS)
def a_number_that_should_be_a_constant(c):
    return checked(c, lambda k, x: k == 5, 5, 6)


@program(graphs=1, breaks=0, options=SCALARS)
def a_number_that_should_be_a_size(c):
    return checked(c, lambda k, x: k == x.size(0), 3, 4)


@program(graphs=1, breaks=0, options=SCALARS)
def a_number_that_should_be_computed_from_a_size(c):
    return checked(c, lambda k, x: k * 2 == x.numel() + 1, 5, 4)


@program(graphs=1, breaks=0, options=SCALARS, dynamic=True)
def a_number_that_should_be_a_symbolic_size(c):
    return checked(c, lambda k, x: k + 1 == x.size(0) + x.size(1), 5, 4)


@program(graphs=1, breaks=0, options={"capture_dynamic_output_shape_ops": True})
def a_size_that_should_be_another(c):
    @c
    def f(x):
        found = x.nonzero()
        torch._check(found.shape[0] == x.shape[0])
        return found + 1

    return f(torch.ones(3)), attempt(f, torch.tensor([1.0, 0.0, 1.0]))[0]


@program(graphs=1, breaks=0)
def classes_of_python_as_dtypes(c):
    f = c(
        lambda x: (
            *(x.to(float), x.to(dtype=int), x.sum(dtype=float), x.to("cpu", bool)),
            *(torch.ones(2, dtype=bool), x.new_zeros(2, dtype=int), torch.ones(2, dtype=complex)),
        )
    )
    return f(square())


@program(graphs=1, breaks=0)
def results_with_names_made_by_the_program(c):
    f = c(lambda x: (torch.return_types.max((x, x + 1)), *torch.return_types.linalg_qr((x, x * 2))))
    return f(square())


@program(graphs=1, breaks=0)
def the_length_of_an_array(c):
    f = c(lambda a: (len(a), a.sum() / len(a), torch.from_numpy(a * len(a))))
    return f(np.ones((2, 3))), f(np.ones((2, 3)) * 2)


@program(graphs=1, breaks=0, options=SCALARS)
def tensors_of_nested_lists_of_numbers(c):
    f = c(
        lambda x: (
            n := x.sum().item(),
            torch.tensor([[n, n + 1], [2.0, n]]),
            torch.tensor([[n], [3]], dtype=torch.float64),
        )[1:]
    )
    return f(square(2)), f(square(2) * 2)


@program(graphs=1, breaks=0)
def tensors_of_lists_of_tensors(c):
    f = c(
        lambda x, n: (
            *(torch.tensor([x[0, 0], x[:1, :1]]), torch.tensor([[n], [n * 2]])),
            *(torch.tensor([n, n * 2, 2]), torch.tensor([n], dtype=torch.int64)),
            torch.tensor(x.numel() == 0),
        )
    )
    return f(square(2), torch.tensor(3)), f(square(2) * 2, torch.tensor(4))


@program(breaks=0)
def tensors_of_lists_of_tensors_that_are_no_numbers(c):
    return attempt(c(lambda x: torch.tensor([x, x])), square(2))


@program(graphs=1, breaks=0, options=SCALARS)
def lists_of_all_dimensions(c):
    f = c(lambda x: ([[v * 2 for v in row] for row in x.tolist()], x.sum().tolist()))
    return f(square(2)), f(square(2) + 1)


@program(graphs=2, breaks=0, options=SCALARS)
def the_truth_of_numbers_out_of_tensors(c):
    f = c(lambda x: (t := bool(x.item()), bool(x > 1), type(t), x + 1))
    return [f(torch.tensor(v)) for v in (2, 0, 1)] + [f(torch.tensor([float("nan")]))]


@program(graphs=1, breaks=0, options=SCALARS)
def the_larger_of_a_number_out_of_a_tensor(c):
    f = c(lambda x: torch.ones(max(x.item(), 4)) * min(x.item(), 2))
    return [f(torch.tensor(v)) for v in (1, 4, 9)]


@program(breaks=0)
def an_outer_product_into_a_tensor_whose_size_changes(c):
    f = c(lambda a, b, out: torch.outer(a, b, out=out))
    return [f(torch.ones(n), torch.ones(1), torch.empty(n, 1)) for n in (2, 6, 4)]


@program()
def a_generator_that_hides_its_own_method(c):
    generator = random.Random(1)
    draw = generator.random
    generator.random = lambda: draw()
    f = c(lambda x: x + generator.random())
    return f(square()), f(square())


@program(breaks=0, dynamic=True)
def whole_numbers_beyond_64_bits(c):
    def hashed(x, n, m):
        return x * ((n * 6364136223846793005 + m) % 2**64 >> 60), x[: n * m % 3] + n**2

    f, g = c(hashed), c(lambda x, n, m: x + n * m * n * m)
    x, pairs = square().double(), [(3, 7), (62, 11), (1000, 1000), (10**9, 10**9), (2**62, 5)]
    return [attempt(lambda: (f(x, n, m), attempt(lambda: g(x, n, m)))) for n, m in pairs]  # noqa: B023


@program(graphs=1, breaks=0, dynamic=True)
def products_of_whole_numbers_of_one_graph(c):
    f = c(lambda x, n, m: x.view(-1, 1).expand(-1, n + m) * (n * m))
    return [f(square(), n, m) for n, m in ((3, 7), (5, 9), (40, 100), (2, 1000))]


@program(breaks=0)
def dtypes_are_refused_where_sizes_have_changed(c):
    f = c(lambda x, v: x.clone().add_(v))
    values = torch.ones(1), torch.ones(3, dtype=torch.complex64), torch.ones(3)
    return [attempt(lambda: f(torch.arange(3.0), v)) for v in values]  # noqa: B023


test_program = program.tests()
