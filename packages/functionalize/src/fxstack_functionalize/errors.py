"""What this package raises, and when.

A graph that cannot be functionalised with eager's exact semantics raises ``UnsupportedGraphError`` while it is
traced: nothing has run, no input has changed, and the captured graph may be run in eager instead. So does a graph
that raises while it is traced (a shape mismatch, an in-place change of a leaf): eager then raises the same error,
at the right moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class FunctionalizeError(RuntimeError):
    """Base of the errors of this package."""


class UnsupportedGraphError(FunctionalizeError):
    """The captured graph does something that cannot be made functional with eager's exact semantics.

    Raised before anything runs. ``what`` says what was found, ``why`` what stands against it, ``fix`` what to do.
    """

    def __init__(self, what: str, *, why: str, fix: str) -> None:
        self.what = what
        self.why = why
        self.fix = fix
        super().__init__(f"{what}\n  why: {why}\n  fix: {fix}")


class TraceFailedError(UnsupportedGraphError):
    """Running the captured graph on fake tensors raised ``error``, which is also this error's ``__cause__``.

    Eager very likely raises the same. It is not passed on as it is, because only eager knows when, and after which
    effects: run the captured graph in eager to get it.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        super().__init__(
            f"tracing stopped with {type(error).__name__}: {error}{notes}",
            why="the graph cannot run on the example inputs",
            fix="run the captured graph in eager: it raises the error at the right moment",
        )


class CompilerContractError(FunctionalizeError):
    """A compiler or partitioner that the caller passed broke its contract (wrong number of results, ...)."""


def double_backward(reason: str) -> str:
    """Return the text of the error that a second differentiation raises where there is no way to do it."""
    return (
        "the backward of a compiled graph cannot be differentiated again (create_graph=True was used).\n"
        f"  why: {reason}, so it cannot be run again to record its derivatives.\n"
        "  fix: compute the first gradient inside the compiled function, or run this part in eager."
    )


def batched_backward(reason: str) -> str:
    """Return the text of the error that special gradients raise where the graph cannot run again for them."""
    return (
        "the backward of a compiled graph cannot take several gradients at once (is_grads_batched, vectorize=True) with "
        "create_graph=True, nor a gradient that is a wrapper subclass where the result is none.\n"
        f"  why: {reason}, so it cannot be run again in eager, which can.\n"
        "  fix: take the gradients one by one, or run this part in eager."
    )


def hidden_gradient(reason: str) -> str:
    """Return the text of the error where the gradient of a result cannot be had that another result is computed from."""
    return (
        "a result of a compiled graph that another result is computed from has a hook, retain_grad(), or was asked for its "
        "gradient (autograd.grad(loss, logits)).\n"
        f"  why: {reason}, so it cannot be run again to find the gradient between its results.\n"
        "  fix: put fxstack.graph_break() behind the first result, or take the gradient inside the compiled function."
    )


INPUT_IS_GONE = (
    "the backward of a compiled graph cannot be differentiated again: a tensor that it was called with is gone.\n"
    "  why: create_graph=True runs the graph again on its inputs, and does not keep those alive that are no leaves.\n"
    "  fix: hold on to the inputs of compiled functions until their second backward."
)
INPUT_CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: an input of a "
    "compiled graph, which create_graph=True runs again.\n"
    "  fix: change inputs of compiled functions after their second backward, or change a copy."
)


def saved_changed(tensor: torch.Tensor, version: int) -> str:
    """Return torch's own words for a saved ``tensor`` that had ``version`` when it was saved, and has not now."""
    return (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version} instead. "
        "Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )


SAVED_ARE_FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)
"""torch's own words, for what a compiled backward has freed before it raised."""
