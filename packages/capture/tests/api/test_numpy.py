"""NumPy in compiled functions: what NumPy gives, to the class, dtype, layout and memory of every result."""

import operator
import warnings

import numpy as np
import pytest
import torch
from beside import breaks_beside_plain

import fxstack_capture as fx

PROGRAMS = {}
"""name -> (function of a tensor and an array, ids of its graph breaks)"""


def program(*breaks):
    def register(fn):
        PROGRAMS[fn.__name__] = fn, list(breaks)
        return fn

    return register


def inputs():
    array = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    return torch.linspace(-1, 1, 12).reshape(3, 4), array


@program()
def from_tensor_and_back(x, a):
    y = np.sin(x.numpy()) + a
    return torch.from_numpy(y), y, torch.as_tensor(y), torch.tensor(y, dtype=torch.float64)


@program()
def tensors_that_arrays_are_made_of(x, a):
    shared, copied = np.asarray(x), np.array(x)
    shared[0] = 7
    return shared, copied, x


@program()
def force(x, a):
    return (x * 2).requires_grad_().numpy(force=True)


@program()
def tensor_that_requires_grad(x, a):
    return (x * 2).requires_grad_().numpy()


@program()
def scalars_and_arrays_of_no_dimension(x, a):
    return (
        a.sum(),
        a[0, 0],
        np.max(a),
        a[..., 0].sum(),
        np.array(2.5),
        a.mean(),
        np.where(a.sum() > 0, 1, 2),
    )


@program()
def promotion(x, a):
    wide = np.float64(2) * a, a * 2, a * 2.5, a + 1j, a.astype(np.int64) / 2, a.astype(np.int8) + 1
    return wide, a > 0, (a > 0) + 1, (a > 0).sum(), np.ones(3) + np.ones(3, np.float32), a // 2.0


@program()
def sums_of_small_integers(x, a):
    small = a.astype(np.int8)
    return small.sum(), small.prod(axis=0), small.mean(), np.add(small, small)


@program()
def attributes(x, a):
    return (
        a.shape,
        a.ndim,
        a.size,
        a.dtype,
        a.itemsize,
        a.nbytes,
        a.strides,
        a.T,
        a.real,
        len(a),
        type(a),
        type(a[0, 0]),
    )


@program()
def classes(x, a):
    s = a.sum()
    return (
        isinstance(a, np.ndarray),
        isinstance(s, np.floating),
        isinstance(s, float),
        a.dtype == np.float32,
        a.dtype.kind,
    )


@program()
def in_place(x, a):
    b = a
    b += 1
    a[1:] *= 2
    np.add(a, 1, out=a)
    s = a.sum()
    t = s
    s += 1
    return b is a, s, t


@program()
def views(x, a):
    v = a[1:, ::2]
    v[...] = 3
    return v, a.reshape(-1), a.ravel()[2:], a.flatten(), a.T, a.copy(), np.swapaxes(a, 0, 1)


@program()
def layouts(x, a):
    turned = a.T
    return (np.exp(turned), turned.copy(), turned + 1, np.ascontiguousarray(turned), np.zeros_like(turned))


@program()
def read_only(x, a):
    return np.broadcast_to(a[0], (2, 4))


FIXED = np.arange(3.0)
FIXED.flags.writeable = False


@program()
def flags_of_a_read_only_array(x, a):
    flags = FIXED.flags
    return flags.writeable, flags.owndata, flags["C_CONTIGUOUS"], x + 1


@program()
def several_results(x, a):
    return (np.split(a, 2, axis=1), np.stack([a, a]), np.meshgrid(a[0], a[1]), np.linalg.norm(a), np.nonzero)


@program()
def constants(x, a):
    return (
        np.sqrt(2.0),
        np.float32(3) + 1,
        np.pi,
        np.dtype("int32"),
        np.finfo(np.float32).eps,
        np.int64(7) // 2,
        a * np.float32(0.5),
    )


@program()
def scalars_beside_tensors(x, a):
    y = x * np.float64(2.5), x + np.int64(2), x ** np.float32(2), x[np.int64(0)]
    return y, torch.full((2,), np.float64(3)), torch.where(x > 0, x, np.float32(1))


@program()
def scalars_whose_dtype_tensors_take(x, a):
    return torch.tensor(np.float32(2)), np.float64(2) * x


@program()
def questions_about_dtypes(x, a):
    return (
        np.issubdtype(a.dtype, np.floating),
        np.result_type(a, 1.5),
        np.can_cast(a.dtype, np.int8),
        np.dtype(float),
    )


@program("unsupported-call")
def rounding_by_keyword(x, a):
    return np.round(a=a, decimals=1)


@program("unsupported-call")
def lists_of_unlike_lengths(x, a):
    return np.power([[1], [1, 2]], 2) + a


@program()
def complex_numbers(x, a):
    z = a + 1j * a
    return z.conj(), np.conj(z) * 2, z.real, z.imag, abs(z), np.conj(z).sum(), z.conj().T


@program("unsupported-object")
def under_autocast(x, a):
    with torch.autocast("cpu"):
        b = a @ a.T
    return b, b.dtype


@program()
def makers(x, a):
    return (
        np.arange(4),
        np.linspace(0, 1, 5),
        np.zeros((2, 3)),
        np.full(3, 7),
        np.eye(2),
        np.array([1, 2, 3]),
    )


@program()
def iteration(x, a):
    return [row.sum() for row in a], sum(a), [float(2) for _ in a], max(len(row) for row in a)


@program()
def called_by_compiled_code(x, a):
    return list(map(np.sin, [a, a])), list(map(np.sum, [a])), sum([a, a])


@program()
def methods(x, a):
    return (
        a.max(axis=1),
        a.argmax(),
        a.clip(-1, 1),
        a.round(1),
        a.std(),
        a.var(axis=0, ddof=1),
        a.take([0, 1]),
        a.dot(a.T),
    )


@program()
def not_a_number(x, a):
    b = np.log(a)
    return b, np.sign(b), np.isnan(b), np.nan_to_num(b), np.maximum(b, 0), np.fmax(b, 0)


@program()
def missing_attribute(x, a):
    return a.nothing


@program("escaping-object", "unsupported-call", "unsupported-object")
def backwards(x, a):
    b = a[::-1]
    return b, (b * 2), b.copy()


@program()
def backwards_inside(x, a):
    return a[::-1].copy(), np.flip(a) * 2, a[::-1].strides


@program("unsupported-object")
def write_to_what_has_a_copy(x, a):
    b = a[::-1]
    c = b * 2
    a[0] = 9
    return c


@program("unsupported-call")
def unknown_function(x, a):
    b = a * 2
    return np.apply_along_axis(lambda row: row * 2, 0, b) + 1


@program("unsupported-call")
def division_of_integers(x, a):
    b = a.astype(np.int32)
    return b // (b * 0) + 1


@program()
def division_by_a_number(x, a):
    b = a.astype(np.int32)
    return b // 3, b % 3, b**2, b << 1


@program("unsupported-call")
def error_of_numpy(x, a):
    return np.concatenate([a, np.ones((2, 2))])


@program("data-dependent-value")
def elements_in_python(x, a):
    return float(a[0, 0]) + x


@program("data-dependent-branch")
def branch(x, a):
    return a if a.sum() > 0 else -a


@program()
def random_numbers(x, a):
    np.random.seed(0)  # noqa: NPY002 - global state is what this is about
    return np.random.rand(3) + a[0, :3]  # noqa: NPY002


@program("unsupported-call")
def comparison_with_a_number_out_of_range(x, a):
    return a.astype(np.uint8) > -1


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_numpy(name):
    fn, breaks = PROGRAMS[name]
    assert sorted(set(breaks_beside_plain(fn, inputs))) == breaks


DTYPES = [np.bool_, np.uint8, np.int32, np.int64, np.float16, np.float32, np.float64, np.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_of_arguments(dtype):
    def fn(a):
        return a + a, a * 1, a.sum(), abs(a), a == a, a.T, np.sqrt(a)

    found = breaks_beside_plain(fn, lambda: (np.arange(6).reshape(2, 3).astype(dtype),))
    assert bool(found) == (dtype is np.uint8)  # whose sum is a uint64


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.arange(3).astype(">i4"), np.arange(3)[::-1]]
)
def test_arrays_without_a_tensor_are_handed_on(array):
    assert breaks_beside_plain(lambda x, a: (x + 1, a), lambda: (torch.ones(2), array)) == []


def frozen():
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: a * 2,
        lambda a: (a, a[0], a.T, a.copy(), a.reshape(-1)),
        lambda a: torch.from_numpy(a) + 1,
        lambda a: torch.from_numpy(a).add_(1),
        lambda a: (torch.as_tensor(a) * 2, torch.tensor(a)),
        lambda a: (a * 2 if a.flags.writeable else a * 3, a.flags.owndata),
        lambda a: operator.setitem(a, 0, 1.0),
        lambda a: np.add(a, 1, out=a),
    ],
)
@pytest.mark.parametrize("make", [frozen, lambda: np.broadcast_to(np.arange(3.0), (2, 3))])
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_read_only_arguments(fn, make):
    assert breaks_beside_plain(fn, lambda: (make(),)) == []


def test_an_argument_may_become_read_only():
    for make in (frozen, lambda: frozen().copy(), frozen):
        assert breaks_beside_plain(lambda a: (a * 2, a[0]), lambda make=make: (make(),)) == []


def test_layouts_and_sizes_of_arguments_may_change():
    def fn(a, b):
        return a @ b, a.shape

    for shape in ((2, 3), (4, 3), (5, 3)):
        assert breaks_beside_plain(fn, lambda shape=shape: (np.ones(shape), np.ones((3, 2)))) == []


def test_arguments_that_share_memory():
    def fn(a, b):
        a += 1
        return a + b

    base = lambda: (lambda x: (x[:3], x[1:4]))(np.arange(5.0))
    breaks_beside_plain(fn, base)
    breaks_beside_plain(fn, lambda: (np.ones(3), np.ones(3)))


def test_the_default_device_is_not_for_arrays():
    def fn(a):
        return a + np.ones(3), np.zeros(2)

    with torch.device("meta"):
        assert set(breaks_beside_plain(fn, lambda: (np.ones(3),))) == {"unsupported-object"}


def test_under_a_transform():
    breaks_beside_plain(
        lambda x: torch.func.vmap(lambda t: torch.from_numpy(t.numpy()))(x), lambda: (torch.ones(2, 3),)
    )


def eager(graph_module, _):
    return graph_module.forward


@pytest.mark.parametrize("wrap", [torch.compiler.wrap_numpy, fx.wrap_numpy])
class TestWrapNumpy:
    """Functions of arrays as functions of tensors."""

    def test_values(self, wrap):
        @wrap
        def program(a, b, *, k=1):
            return {"s": np.sin(a) * b + k, "t": (a.T.copy(), 3), "m": a.mean(0)}

        a, b = torch.randn(3, 2), torch.randn(3, 2)
        for fn in (program, lambda *args, **more: program(*args, **more)):
            found = fx.optimize(eager, fullgraph=True)(fn)(a, b=b, k=2)
            torch.testing.assert_close(found, program(a, b, k=2))

    def test_gradients(self, wrap):
        x = torch.arange(6.0, requires_grad=True)
        fx.optimize(eager, fullgraph=True)(wrap(lambda a: np.sum(a * a)))(x).backward()
        assert x.grad.tolist() == [0, 2, 4, 6, 8, 10]

    def test_memory_is_the_argument_s(self, wrap):
        def program(a):
            a += 1
            return a

        x = torch.zeros(3)
        result = fx.optimize(eager, fullgraph=True)(wrap(program))(x)
        assert result is not x
        assert result.data_ptr() == x.data_ptr()
        assert x.tolist() == [1, 1, 1]


def test_arrays_after_a_break():
    def program(x):
        _, places = x.unique(return_inverse=True)
        return torch.from_numpy(places.detach().numpy() * 2)

    x = torch.randn(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(fx.optimize(eager)(program)(x), program(x))


def test_wrap_numpy_takes_functions_only():
    with pytest.raises(TypeError, match="wrap_numpy: expected a function, got 3"):
        fx.wrap_numpy(3)
