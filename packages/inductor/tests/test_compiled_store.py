"""Compiled graphs as data: what comes back runs as before, and what has no form is refused."""

import json

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph
from fxstack_inductor.compiled_store import ProgramCache
from fxstack_inductor.targets.c.artifact import image_from_json, image_to_json
from fxstack_interchange import LoadError

X, W = torch.randn(6, 8), torch.randn(8, 4)


def stored(fn, *inputs, **options):
    """The graph's callable, and the same from its JSON."""
    chosen = InductorOptions(**options)
    cache = ProgramCache(chosen)
    graph = make_fx(fn, tracing_mode=options.pop("tracing_mode", "fake"))(*inputs)
    compiled = compile_graph(graph, inputs, chosen)
    text = json.dumps(cache.pack(compiled))
    return compiled, cache.unpack(json.loads(text), lambda: graph)


@pytest.mark.parametrize("host", ["native", "python"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: ((x @ w).relu().sum(0),),
        lambda x, w: (x.sin() @ w, torch.sort(x)[0], x.to(torch.float16)),
        lambda x, w: (torch.bernoulli(x.sigmoid()), w),
    ],
)
def test_an_image_from_data_runs_as_before(fn, host):
    compiled, again = stored(fn, X, W, host=host)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        expected = compiled(X, W)
        torch.manual_seed(1)
        torch.testing.assert_close(again(X, W), expected, rtol=0, atol=0)


def test_images_are_equal_data():
    compiled, again = stored(lambda x, w: (torch.addmm(x[:, :4], x, w).exp(),), X, W)
    assert image_to_json(again.image) == image_to_json(compiled.image)


def test_memory_that_depends_on_symbolic_sizes():
    cache = ProgramCache(InductorOptions())
    graph = make_fx(lambda x, w: (torch.cat([x, x[1:]]).exp() @ w.cos(),), tracing_mode="symbolic")(X, W)
    record = cache.pack(compile_graph(graph, (X, W)))
    again = cache.unpack(json.loads(json.dumps(record)), lambda: graph)
    x = torch.randn(2 * X.shape[0], X.shape[1])
    torch.testing.assert_close(again(x, W), graph(x, W))


@pytest.mark.parametrize("name", ["text", "constants", "slots", "windows", "state", "source"])
def test_an_image_that_lacks_something_is_malformed(name):
    compiled, _ = stored(lambda x, w: (x @ w,), X, W)
    content = image_to_json(compiled.image)
    with pytest.raises(LoadError, match="malformed image"):
        image_from_json({key: value for key, value in content.items() if key != name})


def test_documents_replace_older_ones_and_damaged_ones_are_gone(tmp_path):
    cache = ProgramCache(InductorOptions(cache_dir=tmp_path))
    assert cache.read("key") is None
    cache.write("key", [1])
    cache.write("key", [2])
    assert cache.read("key") == [2]
    (file,) = tmp_path.rglob("kernels.so")
    file.write_text("[3]")
    assert cache.read("key") is None
    assert not file.exists()
