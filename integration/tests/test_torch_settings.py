"""Each setting of torch's code generator and autograd frontend has a row, and each row that sets an option has its effect."""

import warnings

import pytest
import torch
import torch._functorch.config as functorch
import torch._inductor.config as inductor

import fxstack
from fxstack.settings import make_options, stages_of, with_torch_settings
from fxstack_interchange.torch_facts.settings_table import FUNCTORCH, INDUCTOR, TABLES, Setting
from fxstack_interchange.torch_facts.torch_settings import find_setting

X = torch.randn(8, 8)
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


@pytest.mark.parametrize(("module", "config"), [(INDUCTOR, inductor), (FUNCTORCH, functorch)])
def test_every_setting_has_a_row_and_every_row_a_setting(module, config):
    assert [name for name in config._config if find_setting(module, name) is None] == []
    if RELEASE < (2, 13):
        pytest.skip("older releases lack some of the settings")
    names, groups = set(TABLES[module]), {name for name in TABLES[module] if name.endswith("*")}
    assert names - groups - config._config.keys() == set()
    members = {group: [name for name in config._config if name.startswith(group[:-1])] for group in groups}
    assert [group for group, found in members.items() if not found] == []


def test_every_option_that_a_row_sets_belongs_to_one_stage():
    options = {row.option for table in TABLES.values() for row in table.values() if row.option is not None}
    minify = {"repro_after", "repro_level"}
    assert {option: len(stages_of(option)) for option in options - minify} == dict.fromkeys(
        options - minify, 1
    )


@pytest.mark.parametrize(
    ("settings", "option", "value"),
    [
        ({"freezing": True}, "freezing", True),
        ({"nan_asserts": True}, "nan_asserts", True),
        ({"force_disable_caches": True}, "use_cache", False),
        ({"fx_graph_cache": False}, "use_cache", False),
        ({"max_autotune": True}, "autotune", True),
        ({"max_autotune_gemm": True}, "autotune", True),
        ({"triton.cudagraphs": True}, "cuda_graphs", True),
        ({"emulate_precision_casts": True}, "eager_rounding", True),
        ({}, "use_cache", True),
    ],
)
def test_settings_of_inductor_set_options(settings, option, value):
    with inductor.patch(settings):
        assert getattr(with_torch_settings(make_options(None, None)).inductor, option) == value


def test_an_option_precedes_the_setting():
    with inductor.patch(fx_graph_cache=True, freezing=True):
        assert with_torch_settings(make_options(None, {"freezing": True})).inductor.freezing
        assert not with_torch_settings(make_options(None, {"use_cache": False})).inductor.use_cache


@pytest.mark.parametrize(
    ("stage", "option"),
    [("functionalize", "functional_random"), ("partition", "recompute_views"), ("inductor", "nan_asserts")],
)
def test_a_row_alone_sets_an_option_of_any_stage(monkeypatch, stage, option):
    value = not getattr(getattr(make_options(None, None), stage), option)
    monkeypatch.setitem(TABLES[FUNCTORCH], "functionalize_rng_ops", Setting(option, lambda _: value))
    with functorch.patch(functionalize_rng_ops=True):
        assert getattr(getattr(with_torch_settings(make_options(None, None)), stage), option) == value


def test_an_option_of_torch_that_is_no_switch_takes_its_value(monkeypatch):
    monkeypatch.setitem(TABLES[INDUCTOR], "autotune_fallback_to_aten", Setting("unbacked_hint", int))
    assert make_options(None, {"autotune_fallback_to_aten": 7}).partition.unbacked_hint == 7


@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_a_budget_of_activations_chooses_the_partitioner(budget):
    def fn(x):
        for _ in range(4):
            x = torch.sin(x @ x) * torch.cos(x)
        return x.sum()

    def gradient(fn):
        x = (X / 8).requires_grad_()
        fn(x).backward()
        return x.grad

    with functorch.patch(activation_memory_budget=budget):
        made = with_torch_settings(make_options(None, None))
        assert (made.partitioner, made.partition.budget) == ("budget", budget)
        assert with_torch_settings(make_options(None, {"partitioner": "save_all"})).partitioner == "save_all"
        torch.testing.assert_close(gradient(fxstack.compile(fn)), gradient(fn))
    assert with_torch_settings(make_options(None, None)).partitioner == "min_cut"


def said_under(**settings):
    def fn(x):
        return x * 5

    with inductor.patch(**settings), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fxstack.compile(fn, backend="eager")(X)
    return [
        str(one.message)
        for one in caught
        if (one.filename, one.lineno) == (__file__, fn.__code__.co_firstlineno)
    ]


def test_settings_without_effect_are_reported_at_the_program():
    assert said_under(max_fusion_size=63) == [
        (
            "torch._inductor.config.max_fusion_size = 63 has no effect in fxstack: it configures the code generator of"
            " torch's compiler, which does not run."
        )
    ]
    assert said_under(max_fusion_size=63) == []
    assert said_under(freezing=True) == []
