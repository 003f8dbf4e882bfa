"""The stages of the pipeline, each as arguments of ``fxstack.compile`` that run the pipeline up to this stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fxstack.minify.compare import Failure


@dataclass(frozen=True, slots=True)
class Setup:
    """How a graph is compiled. ``stage`` is the last stage that runs, in words."""

    stage: str
    backend: str = "inductor"
    partitioner: str = ""
    dynamic: bool | None = None
    strides: bool = False
    """Whether the script compares strides, too: of all dimensions, also of those of one element."""

    def arguments(self) -> str:
        """Return the keyword arguments of ``fxstack.compile`` as text."""
        # Code from the cache on disk says nothing about the compiler.
        options: dict[str, object] = {"raise_failures": True, "use_cache": False}
        if self.partitioner:
            options["partitioner"] = self.partitioner
        parts = [f"backend={self.backend!r}"] if self.backend != "inductor" else []
        parts += [f"dynamic={self.dynamic}"] if self.dynamic is not None else []
        return ", ".join([*parts, f"options={options!r}"])


CAPTURE = Setup("capture", "eager")
STAGES = (
    CAPTURE,
    Setup("functionalize", "aot_eager", "save_all"),
    Setup("partition", "aot_eager"),
    Setup("decompositions", "aot_eager_decomp_partition"),
    Setup("inductor kernels"),
)
"""In the order of the pipeline. A stage that passes (``FXSTACK_STOP_AFTER``) would be a row between two of these."""


def first_failing(
    attempt: Callable[[Setup], Failure | None], *, strides: bool = False
) -> tuple[Setup, Failure] | None:
    """Return the first stage that fails, with sizes specialised or, where nothing fails so, symbolic."""
    for dynamic in (None, True):
        for setup in STAGES:
            chosen = replace(setup, dynamic=dynamic, strides=strides)
            failure = attempt(chosen)
            if failure is not None:
                return chosen, failure
    return None
