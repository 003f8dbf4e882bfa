"""The recording mode starts as torch's own does, and tracing does not load torch's compiler."""

from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

from fxstack_functionalize.recording import RecordingMode, _is_known_constructor
from fxstack_functionalize.tracer.aten_tracer import AtenTracer


def test_state_is_that_of_torchs_mode():
    tracer = AtenTracer()
    ours = vars(RecordingMode(tracer, {}))
    theirs = vars(ProxyTorchDispatchMode(tracer, "symbolic", False, False, False))
    assert _is_known_constructor()
    assert theirs.keys() <= ours.keys()
    assert {key: ours[key] for key in theirs} == theirs
