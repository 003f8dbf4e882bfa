"""What surrounds tensors in programs: compiled functions inside compiled functions, modules, contexts."""

import torch
from beside_eager import Programs, attempt
from torch import nn
from torch.library import custom_op
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

import fxstack_capture

program = Programs()


@program(graphs=2, breaks=0)
def compiled_function_in_a_compiled_function(c):
    inner = c(lambda x: x.sin() + 1)
    outer = c(lambda x: (inner(x) * 2, inner))
    x = torch.randn(3, requires_grad=True)
    y, same = outer(x)
    y.sum().backward()
    return y, same is inner, x, inner(torch.randn(3))


@program(breaks=0)
def default_dtype_set_for_a_while(c):
    @c
    def run(x):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        made = x / 2, torch.ones(3) * x, torch.arange(3) / x, x.sum() * 1.5
        torch.set_default_dtype(before)
        return (*made, x / 3)

    return [run(torch.arange(1, 4) + i) for i in range(3)]


@program()
def default_dtype_set_and_left_behind_a_break(c):
    @c
    def run(x):
        torch.set_default_dtype(torch.float64)
        fxstack_capture.graph_break()
        y = x / 2, torch.ones(3)
        torch.set_default_dtype(torch.float32)
        return y

    return [run(torch.arange(1, 4) + i) for i in range(3)]


@program(breaks=0)
def device_of_a_region(c):
    @c
    def run(x):
        with torch.device("meta"):
            made = torch.ones(2), torch.empty_like(x)
        return [t.device for t in made], made[0].shape, x + 1

    return [run(torch.ones(3)), run(torch.ones(3))]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.count = 0

    def forward(self, x):
        self.count += 1
        return self.linear(x)


@program(breaks=0)
def compiled_module_in_a_compiled_training_step(c):
    model = Counting()
    compiled = c(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @c
    def step(x):
        optimizer.zero_grad()
        loss = compiled(x).pow(2).mean()
        seen = compiled.count
        loss.backward()
        optimizer.step()
        compiled.count += 1
        return loss.detach(), seen, model.count, compiled.linear.weight is model.linear.weight

    return [step(torch.randn(2, 3)) for _ in range(3)], model, model.count


@program(graphs=1, breaks=0)
def compiled_submodule(c):
    model = nn.Sequential(c(nn.Linear(3, 3)), nn.ReLU(), nn.Linear(3, 3))
    model[2].forward = c(model[2].forward)
    y = c(model)(torch.randn(2, 3))
    y.sum().backward()
    return y, [p.grad for p in model.parameters()], list(model.state_dict())


@program(graphs=1, breaks=0)
def compiled_method(c):
    class Scale:
        def __init__(self):
            self.by = 1

        def apply(self, x):
            self.by += 1
            return x * self.by

    Scale.apply = c(Scale.apply)
    scale = Scale()
    return c(lambda x: scale.apply(x) + 1)(torch.randn(3)), scale.by


@program(breaks=0)
def objects_that_share_their_dictionary(c):
    class Shared:
        pass

    a, b = Shared(), Shared()
    b.__dict__ = a.__dict__
    a.n = 1

    @c
    def f(x):
        a.n += 1
        y = x * b.n
        b.n = 10
        return y * a.n

    return f(torch.randn(3)), a.n, b.n, f(torch.randn(3)), a.n


# --- torch's global state ----------------------------------------------------------------------------


def attend(q):
    return F.scaled_dot_product_attention(q, q, q)


def flash():
    return torch.backends.cuda.flash_sdp_enabled()


@program(breaks=0)
def implementations_of_attention_chosen_inside(c):
    @c
    def f(q):
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
            inside = attend(q), flash()
        return inside, flash(), SDPBackend.MATH

    q = torch.randn(1, 2, 4, 8)
    return f(q), f(q), flash()


@program(breaks=1)
def graph_break_while_attention_is_restricted(c):
    @c
    def f(q):
        with sdpa_kernel(SDPBackend.MATH):
            y = q * 2
            fxstack_capture.graph_break()
            inside = attend(y), flash()
        return inside, flash()

    return f(torch.randn(1, 2, 4, 8)), flash()


@program(graphs=2, breaks=0)
def state_that_was_asked_for_is_guarded(c):
    f = c(lambda x: x * 2 if flash() else x * 3)
    outs = [f(torch.ones(2))]
    with sdpa_kernel(SDPBackend.MATH):
        outs.append(f(torch.ones(2)))
    return outs, f(torch.ones(2))


@program()
def inference_mode_inside_and_around(c):
    @c
    def inside(x):
        with torch.inference_mode():
            y = x * 2
        return y, y.is_inference()

    around = c(lambda x: (x * 2, torch.is_inference_mode_enabled()))
    with torch.inference_mode():
        x = torch.ones(3)
        seen = around(x)[1], around(torch.ones(3))[1]
    return inside(torch.ones(3))[1], seen, around(torch.ones(3)), x.is_inference()


@program(breaks=0)
def autocast_nested(c):
    model = nn.Linear(4, 4)

    @c
    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x)
            with torch.autocast("cpu", enabled=False):
                z = model(x)
            return y, z, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    return f(torch.ones(2, 4))


class Doubling(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.sin else result


@program()
def function_modes(c):
    def entering(x):
        with Doubling() as mode:
            return torch.sin(x), mode.seen

    f = c(lambda x: torch.sin(x) + 1)
    with Doubling() as mode:
        around = f(torch.ones(3)), f(torch.ones(3)), mode.seen
    return c(entering)(torch.ones(3)), around, f(torch.ones(3))


class Counter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@program()
def dispatch_modes(c):
    def entering(x):
        with Counter() as mode:
            y = torch.sin(x) + 1
        return y, mode.names

    f = c(lambda x: torch.sin(x) + 1)
    with Counter() as mode:
        around = f(torch.ones(3)), mode.names
    return c(entering)(torch.ones(3)), around, f(torch.ones(3))


# --- kinds of tensors, operators, hooks ----------------------------------------------------------------


@program(breaks=0)
def buffers_are_known_as_such(c):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.total = nn.Buffer(torch.ones(3))

        def forward(self, x):
            self.total.add_(1)
            return x * self.total, isinstance(self.total, nn.Buffer), isinstance(x, nn.Buffer)

    model = Model()
    f = c(model)
    return f(torch.ones(3)), f(torch.ones(3)), model


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@program()
def subclasses(c):
    f = c(lambda x: (x * 2).sin())
    return type(f(torch.ones(3).as_subclass(Tagged))).__name__, f(TwoTensor(X, X)).b


X = torch.ones(3)


@custom_op("fxtest::add_one_", mutates_args=("x",))
def add_one_(x: torch.Tensor) -> None:
    x.add_(1)


@custom_op("fxtest::square", mutates_args=())
def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


square.register_fake(torch.empty_like)
square.register_autograd(
    lambda ctx, g: g * 2 * ctx.saved_tensors[0],
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@program(graphs=1, breaks=0)
def operators_of_the_program(c):
    @c
    def f(x):
        y = x.clone()
        add_one_(y)
        torch.ops.fxtest.add_one_(y)
        return square(y) + torch.ops.fxtest.square(x)

    x = torch.ones(3, requires_grad=True)
    y = f(x)
    y.sum().backward()
    return y, x


@program(graphs=1, breaks=0)
def operator_of_a_library(c):
    library = torch.library.Library("fxtest_library", "FRAGMENT")
    name = f"twice{len(NAMES)}"
    NAMES.append(name)
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x * 2, "CompositeExplicitAutograd")
    return c(lambda x: getattr(torch.ops.fxtest_library, name)(x) + 1)(torch.ones(3))


NAMES = []


@program(breaks=0)
def forward_hooks(c):
    model, seen = nn.Linear(3, 3), []
    double = lambda mod, args, kwargs: (args, {"input": kwargs["input"] * 2})
    model.register_forward_pre_hook(double, with_kwargs=True)
    model.register_forward_hook(lambda mod, args, out: seen.append(1), always_call=True)
    return c(lambda x: model(input=x))(torch.ones(2, 3)), seen


@program()
def backward_hooks(c):
    model, seen = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), []
    model[0].register_full_backward_hook(lambda mod, gi, go: seen.append(len(gi)))
    model[1].register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
    x = torch.ones(2, 3, requires_grad=True)
    c(model)(x).sum().backward()
    return x, model, seen


@program()
def hooks_of_tensors_made_inside(c):
    @c
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 3)
        y.retain_grad()
        return y, (y * y).sum()

    x = torch.ones(3, requires_grad=True)
    y, loss = f(x)
    loss.backward()
    return x, y.grad


@program(graphs=1, breaks=0)
def lazy_modules(c):
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    f = c(model)
    outs = [f(torch.randn(2, 3)) for _ in range(3)]
    outs[-1].sum().backward()
    return outs, model, [type(layer).__name__ for layer in model]


@program(graphs=1, breaks=0)
def lazy_module_in_a_function(c):
    model = nn.LazyLinear(4)
    f = c(lambda x: model(x) * 2)
    return f(torch.ones(2, 3)), f(torch.ones(2, 3)), model


@program(graphs=1, breaks=0)
def data_of_parameters_replaced(c):
    model, average = nn.Linear(2, 2), nn.Linear(2, 2)

    @c
    def update(decay):
        for mine, theirs in zip(average.parameters(), model.parameters()):
            mine.data = mine.data * decay + theirs.data * (1 - decay)

    return update(0.5), update(0.5), average, model, [p.is_leaf for p in average.parameters()]


@program()
def replaced_data_is_read_afterwards(c):
    @c
    def f(x, y):
        x.data = y * 2
        return x + 1, x.shape, x.data

    x = torch.ones(3, requires_grad=True)
    out, *others = f(x, torch.ones(2))
    out.sum().backward()
    return out, others, x


@program()
def data_replaced_after_the_tensor_was_saved(c):
    @c
    def f(x, w):
        out = (x * w).sum()
        x.data = w.detach() * 5
        return out

    x, w = torch.ones(3), torch.full((3,), 2.0, requires_grad=True)
    f(x, w).backward()
    return x, w


@program()
def data_shared_twice_and_with_another_dtype(c):
    @c
    def f(x, y, z):
        x.data = z
        y.data = z
        return z + 1

    def g(x, y):
        x.data = y
        return x.dtype

    x, y, z = torch.ones(3), torch.zeros(3), torch.full((3,), 7.0)
    out = f(x, y, z)
    return out, x, y, z, attempt(c(g), torch.ones(3), torch.ones(3, dtype=torch.int32))


@program(graphs=2)
def statistics_of_a_batch_norm_whose_result_nobody_uses(c):
    norm = torch.nn.BatchNorm1d(3)

    @c
    def f(x):
        norm(x)
        return x * 2

    x = torch.arange(12.0).reshape(4, 3)
    return f(x), f(x.clone().requires_grad_()), norm


@program(graphs=1)
def views_of_arguments_after_grad_mode_is_on_again(c):
    """The graph begins under no_grad, where the program has printed."""
    weight = torch.arange(6.0).reshape(2, 3).requires_grad_()

    @c
    def f(x):
        with torch.no_grad():
            print(end="", flush=True)
            inside = weight.t()
        return x.double(), inside, weight.t(), weight[0], weight.detach()

    x, *views = f(torch.ones(3))
    seen = [(v.is_leaf, v.requires_grad, v._is_view()) for v in views]
    (views[1].sum() * 2 + views[2].sum()).backward()
    return x, seen, weight


@program()
def views_in_inference_mode(c):
    whole = torch.arange(12.0).reshape(3, 4)
    f = c(lambda x: (x * 2, x.view(-1)))
    out = []
    for x in (whole[1:], whole[1:].detach().requires_grad_(), whole.requires_grad_()[1:]):
        with torch.inference_mode():
            out += [(y.is_inference(), y.tolist()) for y in f(x)]
            out.append([y.is_inference() for y in f(x[:1])])
    return out


test_equals_eager = program.tests()
