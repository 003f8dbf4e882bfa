"""The errors of this package and their texts.

Tracing raises ``UnsupportedGraphError`` for a graph that has no functional form with eager's exact semantics.
Nothing has run and no input has changed then, so the caller can run the captured graph in eager. An operator
that raises while it is traced (a shape mismatch, an in-place change of a leaf) leads to ``TraceFailedError``,
a subclass: eager then raises the same error at the right moment.
"""

from __future__ import annotations

import torch


class FunctionalizeError(RuntimeError):
    """Base of the errors of this package."""


class UnsupportedGraphError(FunctionalizeError):
    """The captured graph has no functional form with eager's exact semantics. Raised before anything runs.

    ``what`` names the unsupported operation, ``why`` the reason, ``fix`` a change of the program that avoids
    it.
    """

    def __init__(self, what: str, *, why: str, fix: str) -> None:
        self.what = what
        self.why = why
        self.fix = fix
        super().__init__(f"{what}\n  why: {why}\n  fix: {fix}")


class TraceFailedError(UnsupportedGraphError):
    """The captured graph raised ``error`` on fake tensors. ``error`` is also the ``__cause__`` of this error.

    Eager very likely raises the same error. Tracing does not raise ``error`` itself, because only eager runs
    the effects that come before the error: run the captured graph in eager.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        super().__init__(
            f"tracing stopped with {type(error).__name__}: {error}{notes}",
            why="the graph cannot run on the example inputs",
            fix="run the captured graph in eager: it raises the error at the right moment",
        )


def no_gradient_error(operator: object) -> UnsupportedGraphError:
    """Return the error for results of an operator that require a gradient, although its backward raises."""
    return UnsupportedGraphError(
        f"a result of {operator} requires a gradient",
        why="the operator has no gradient: its backward raises an error",
        fix="call its function itself, or call the operator under torch.no_grad()",
    )


class CompilerContractError(FunctionalizeError):
    """A compiler or partitioner of the caller broke its contract (wrong number of results, ...)."""


def double_backward(reason: str) -> str:
    """Return the error text for a backward under ``create_graph=True`` without a second derivative."""
    return (
        "the backward of a compiled graph cannot be differentiated again (create_graph=True was used).\n"
        f"  why: {reason}, so it cannot be run again to record its derivatives.\n"
        "  fix: compute the first gradient inside the compiled function, or run this part in eager."
    )


def batched_backward(reason: str) -> str:
    """Return the error text for batched or subclass gradients if the graph cannot run again in eager."""
    return (
        "the backward of a compiled graph cannot take several gradients at once (is_grads_batched, vectorize=True) with "
        "create_graph=True, nor a gradient that is a wrapper subclass where the result is none.\n"
        f"  why: {reason}, so it cannot be run again in eager, which can.\n"
        "  fix: take the gradients one by one, or run this part in eager."
    )


def hidden_gradient(reason: str) -> str:
    """Return the error text for the gradient of a result from which another result is computed."""
    return (
        "a result of a compiled graph that another result is computed from has a hook, retain_grad(), or was asked for its "
        "gradient (autograd.grad(loss, logits)).\n"
        f"  why: {reason}, so it cannot be run again to find the gradient between its results.\n"
        "  fix: put fxstack.graph_break() behind the first result, or take the gradient inside the compiled function."
    )


INPUT_CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: an input of a "
    "compiled graph, which create_graph=True runs again.\n"
    "  fix: change inputs of compiled functions after their second backward, or change a copy."
)


def saved_changed(tensor: torch.Tensor, version: int) -> str:
    """Return torch's error text for a saved ``tensor`` whose version was ``version`` when it was saved."""
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
"""torch's error text, for saved tensors that a compiled backward has freed."""
