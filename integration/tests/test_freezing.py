"""Frozen weights: results are eager's after every way to change a model that can be seen."""

import pytest
import torch
from torch import nn

import fxstack
from fxstack_inductor.freezing import packing
from fxstack_inductor.freezing.frozen import MOST_MISSES, Frozen
from fxstack_inductor.lower.rewrites import channels_last

OPTIONS = {"freezing": True, "use_cache": False, "optimization": 1}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.first, self.second = nn.Linear(16, 128), nn.Linear(128, 160)

    def forward(self, x):
        x = self.norm(self.convolution(x)).relu()
        return self.second(self.first(x.flatten(1)).tanh()), self.second.bias.exp()


@pytest.fixture(autouse=True, scope="module")
def always_packed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "faster", lambda *_: True)
        yield


@pytest.fixture(scope="module")
def pair():
    torch.manual_seed(0)
    model = Model().eval()
    return model, fxstack.compile(model, options=OPTIONS)


X = torch.randn(2, 3, 4, 4)


def agrees(model, compiled, x=X):
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def assign(model):
    model.first.weight.data = torch.randn_like(model.first.weight)


def write(model):
    with torch.no_grad():
        model.second.weight.mul_(2)


def fused_step(model):
    """Changes parameters without their versions."""
    before = model.first.weight._version
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5, fused=True)
    model(X)[0].sum().backward()
    optimizer.step()
    assert model.first.weight._version == before


def train(model):
    """Changes running statistics without their versions."""
    before = model.norm.running_mean._version
    with torch.no_grad():
        model.train()(X * 3)
    model.eval()
    assert model.norm.running_mean._version == before


CHANGES = {
    "nothing": lambda _: None,
    "a write": write,
    "another memory": assign,
    "another parameter": lambda m: setattr(m.second, "bias", nn.Parameter(torch.ones(160))),
    "another module": lambda m: setattr(m, "convolution", nn.Conv2d(3, 4, 3)),
    "a state dict": lambda m: m.load_state_dict(Model().state_dict()),
    "a fused step": fused_step,
    "training statistics": train,
    "a buffer": lambda m: m.norm.running_var.add_(1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_seen(pair, name):
    agrees(*pair)
    CHANGES[name](pair[0])
    agrees(*pair)


def test_constants_are_computed_once_for_a_state(monkeypatch):
    folds = []
    fold = Frozen._fold
    monkeypatch.setattr(Frozen, "_fold", lambda self, *a: folds.append(1) or fold(self, *a))
    model = Model().eval()
    compiled = fxstack.compile(model, options=OPTIONS)
    for change, count in (("nothing", 1), ("nothing", 1), ("a write", 2), ("nothing", 2)):
        CHANGES[change](model)
        agrees(model, compiled)
        assert len(folds) == count


def test_results_are_the_callers_own(pair):
    model, compiled = pair
    with torch.no_grad():
        compiled(X)[1].zero_()
    agrees(model, compiled)


def test_training_and_inference_mode(pair):
    model, compiled = pair
    model.zero_grad()
    compiled(X)[0].sum().backward()
    got = model.first.weight.grad.clone()
    model.zero_grad()
    model(X)[0].sum().backward()
    torch.testing.assert_close(got, model.first.weight.grad, rtol=1e-4, atol=1e-4)
    with torch.inference_mode():
        agrees(model, compiled)


def test_max_autotune_freezes():
    assert fxstack.settings.make_options("max-autotune", None).inductor.freezing
    assert not fxstack.settings.make_options(None, None).inductor.freezing
    chosen = fxstack.settings.make_options("max-autotune", {"freezing": False})
    assert not chosen.inductor.freezing


def test_weights_that_change_between_all_calls():
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 128)).eval()
    compiled = fxstack.compile(lambda x: model(x) * model[0].weight.exp().sum(), options=OPTIONS)
    for _ in range(MOST_MISSES + 3):
        agrees(lambda x: model(x) * model[0].weight.exp().sum(), compiled, torch.randn(2, 4))
        with torch.no_grad():
            model[0].weight.mul_(0.9)


def images(first=(), *layers):
    """A network of convolutions."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, **dict(first)), nn.ReLU(), *layers, nn.Conv2d(16, 16, 3), nn.Conv2d(16, 8, 1)
    )


IMAGES = {
    "plain": images(),
    "padding, stride and no bias": images({"padding": 1, "stride": 2, "bias": False}),
    "dilation": images({"dilation": 2}),
    "depthwise": images((), nn.Conv2d(16, 16, 3, groups=16)),
    "groups": images((), nn.Conv2d(16, 16, 3, groups=4)),
    "transposed": images((), nn.ConvTranspose2d(16, 16, 3)),
    "norms": images((), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU6()),
}


def special(x):
    """Images with NaN and infinite points."""
    x = x.clone()
    x[0, 0, 1, 1], x[1, 2, 3, 4] = float("nan"), float("inf")
    return x


@pytest.mark.parametrize("name", IMAGES)
def test_convolutions_with_packed_weights(name, monkeypatch):
    packed = []
    pack = packing.pack_weight
    monkeypatch.setitem(channels_last.MOST_COPIED, "cpu", 1.0)
    monkeypatch.setattr(packing, "pack_weight", lambda *args: packed.append(1) or pack(*args))
    model = IMAGES[name].eval()
    compiled = fxstack.compile(model, options=OPTIONS)
    x = torch.randn(2, 3, 24, 24)
    for inputs in (x, special(x), x):
        with torch.no_grad():
            got, want = compiled(inputs), model(inputs)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
        assert got.stride() == want.stride()
        assert packed or not packing.available()
        write_convolution(model)


def write_convolution(model):
    with torch.no_grad():
        model[0].weight.mul_(0.5)


def test_half_precision_without_instructions_for_it(monkeypatch):
    """oneDNN refuses to pack bfloat16 on a CPU without instructions for it."""
    monkeypatch.setattr(packing, "faster", lambda *_: True)
    model = nn.Linear(256, 256).bfloat16().eval()
    compiled = fxstack.compile(model, options={**OPTIONS, "raise_failures": True})
    x = torch.ones(2, 256, dtype=torch.bfloat16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
