"""A compiled program as one JSON document: records of its wrapper, and its graphs in stored form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fxstack_functionalize.aliasing.synthetic_bases import with_bases
from fxstack_functionalize.disk.codec import from_json, to_json
from fxstack_functionalize.disk.sizes import Sizes
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.runtime.backward.backwards import Variant
from fxstack_functionalize.runtime.plan import TrainingPlan
from fxstack_functionalize.torch_compat import pytree
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.inputs import Captured
from fxstack_interchange import LoadError, SaveError

FORMAT = 5


@dataclass(frozen=True, slots=True)
class Stored:
    """A program from disk. ``plan``: None for inference. ``variant``, ``backward``: None if not stored."""

    shell: Shell
    plan: TrainingPlan | None
    variant: Variant | None
    forward: Any
    backward: Any
    symbolic: bool
    """Whether the program has symbolic sizes."""


def encode_program(
    shell: Shell,
    training: tuple[TrainingPlan, Variant | None] | None,
    assumed: Sequence[str],
    forward: object,
    backward: object,
) -> dict[str, Any]:
    """Return the document of a program with the packed graphs ``forward`` and ``backward``.

    ``assumed``: the guards on symbolic sizes that compiling added.

    Raises:
        SaveError: if a record has no JSON form.
    """
    spec = shell.out_spec
    if spec.type is not tuple or not all(child.is_leaf() for child in spec.children()):
        raise SaveError("the outputs are a nest, not a flat tuple")
    bases = [spec for spec in shell.captured.inputs if spec.members is not None]
    groups, rooted = [
        to_json(tuple(base.members for base in found))
        for found in (bases, [base for base in bases if base.is_root])
    ]
    return {
        "format": FORMAT,
        "info": to_json(shell.info),
        "outputs": spec.num_leaves,
        "groups": groups,
        "rooted": rooted,
        "assumed": [*assumed],
        "plan": None if training is None else to_json(training),
        "forward": forward,
        "backward": backward,
    }


def decode_program(document: Any, captured: Captured, sizes: Sizes) -> Stored | None:
    """Return the program of a document for a captured graph with the same key; None if its guards fail.

    Raises:
        LoadError: if the document is malformed, or does not fit the graph.
    """
    try:
        if document["format"] != FORMAT:
            raise LoadError(f"format {document['format']!r:.20} is not {FORMAT}")
        if not sizes.assume(document["assumed"]):
            return None
        groups = from_json(document["groups"], sizes.size)
        rooted = from_json(document["rooted"], sizes.size)
        info = from_json(document["info"], sizes.size)
        plan, variant = (None, None)
        if document["plan"] is not None:
            plan, variant = from_json(document["plan"], sizes.size)
        spec = pytree.tree_structure(tuple(range(document["outputs"])))
        forward, backward = document["forward"], document["backward"]
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise LoadError(f"malformed program: {error}") from error
    merged = with_bases(captured, groups, rooted) if groups else captured
    fits = isinstance(info, GraphInfo) and len(info.inputs) == len(merged.inputs)
    differentiated = isinstance(variant, Variant) and backward is not None
    trains = isinstance(plan, TrainingPlan) and (differentiated or variant is backward is None)
    if not fits or not (trains or plan is None) or len(info.outputs) != spec.num_leaves:
        raise LoadError("the program is not one of this graph")
    return Stored(Shell(merged, info, spec), plan, variant, forward, backward, sizes.used)
