"""What a schedule has in memory: intermediates in the arena, results beside it, views nowhere."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import lower, memory_timeline
from fxstack_inductor.runtime.arena import PAGE


def timeline(fn, *inputs):
    return memory_timeline(lower(make_fx(fn, tracing_mode="fake")(*inputs)).plan, {})


def test_results_are_allocated_and_intermediates_are_not():
    found = timeline(lambda x, w: ((x @ w).exp() @ w,), torch.randn(64, 64), torch.randn(64, 64))
    assert found.arena >= 2 * 64 * 64 * 4
    assert found.arena % PAGE == 0
    assert max(size for _, size in found.steps) == 64 * 64 * 4


def test_what_is_fused_has_no_memory():
    found = timeline(lambda x: (x.sin().cos().exp().sum(),), torch.randn(999))
    assert found.arena == 0
    assert found.steps[-1][1] == 4


def test_results_of_calls_end_with_their_last_reader():
    found = timeline(lambda x: (x.sort()[0].cumsum(0).sum(),), torch.randn(1000))
    assert found.steps[0][1] == 1000 * (4 + 8)
    assert found.steps[-1][1] < 1000 * 4 + 8


def test_steps_are_named_after_what_they_compute():
    found = timeline(lambda x, w: ((x @ w).exp(),), torch.randn(4, 4), torch.randn(4, 4))
    assert [name for name, _ in found.steps] == ["mm", "exp"]
