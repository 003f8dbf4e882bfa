"""Shape environments go with the programs that they were made for."""

import gc
import weakref

import pytest
from torch.fx.experimental.symbolic_shapes import DimDynamic

from fxstack_capture.shapes.symbolic.env import CaptureShapeEnv, NamedSource
from fxstack_capture.sources import Local

QUESTIONS = {
    "a comparison": lambda n: n > 4,
    "divisibility": lambda n: n % 2 == 0,
    "a division": lambda n: n // 2 > 2,
    "a product": lambda n: n * n != 49,
    "one size": lambda n: n == 6,
}


def after(ask):
    """A reference to an environment that has answered a question about a size of 6."""
    env, source = CaptureShapeEnv(tuple), NamedSource(Local("x"))
    symbol = env.create_symbol(6, source=source, dynamic_dim=DimDynamic.DYNAMIC)
    assert ask(env.create_symintnode(symbol, hint=6, source=source))
    assert len(env.guards) == 1
    return weakref.ref(env)


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_environment_does_not_stay_in_caches(question):
    gone = after(QUESTIONS[question])
    after(QUESTIONS[question])  # caches of ShapeEnv keep the last one that asked
    gc.collect()
    assert gone() is None
