"""A compiled program as one JSON document: the records of its wrapper, and its graphs in stored form.

Records are frozen dataclasses of this package, enumerations, view steps, and literals of graphs. A symbolic
size is a text over the symbols of the inputs (``sizes``). A value without JSON form (an object of the
program) raises ``SaveError``, so that its program is not kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch

from fxstack_functionalize.aliasing.synthetic_bases import with_bases
from fxstack_functionalize.disk.sizes import Sizes
from fxstack_functionalize.metadata.records import GraphInfo, InputInfo, OutputInfo, OutputSource, Relayout
from fxstack_functionalize.metadata.replay import AliasInfo, AliasSource, Detachment
from fxstack_functionalize.runtime.backward.backwards import Variant
from fxstack_functionalize.runtime.backward.output_edges import Refusals
from fxstack_functionalize.runtime.backward.saved import SavedTensor
from fxstack_functionalize.runtime.forward.outputs import is_flat_tuple
from fxstack_functionalize.runtime.plan import TangentPlan, TrainingPlan
from fxstack_functionalize.torch_compat import functionalization as views
from fxstack_functionalize.torch_compat import pytree
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.inputs import Captured
from fxstack_functionalize.tracer.tensor_metadata import TensorMeta
from fxstack_interchange import LoadError, SaveError
from fxstack_interchange.format.encoding.arguments import decode_constant, encode
from fxstack_interchange.format.expressions import to_text
from fxstack_interchange.format.literals import LITERAL_TYPES

RECORDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        AliasInfo,
        GraphInfo,
        InputInfo,
        OutputInfo,
        Refusals,
        Relayout,
        SavedTensor,
        TangentPlan,
        TensorMeta,
        TrainingPlan,
        Variant,
    )
}
ENUMS: dict[str, Any] = {
    kind.__name__: kind for kind in (AliasSource, Detachment, OutputSource, views.InverseReturnMode)
}
VIEW = "_ViewMeta"
_PLAIN = frozenset({int, bool, str, type(None)})
"""The classes of literals that JSON holds as they are: most values of a record."""


def to_json(value: Any) -> Any:
    """Return ``value`` as JSON.

    Raises:
        SaveError: if ``value`` or a part of it has no JSON form.
    """
    # Exact types: a subclass of tuple or of a number would return as its base class.
    if type(value) is tuple:
        return [to_json(item) for item in value]
    if type(value) is list:
        return {"list": [to_json(item) for item in value]}
    if type(value) is torch.SymInt:
        return {"size": to_text(value.node.expr)}
    if type(value) in _PLAIN:
        return {"literal": value}
    if type(value).__name__ in RECORDS and is_dataclass(value):
        content = [to_json(getattr(value, field.name)) for field in fields(value)]
        return {"record": type(value).__name__, "fields": content}
    if type(value) in ENUMS.values():
        return {"enum": type(value).__name__, "name": value.name}
    if isinstance(value, type) and value.__name__.endswith(VIEW):
        return {"view": value.__name__}
    _check_literal(value)
    return {"literal": encode(value)}


def _check_literal(value: Any) -> None:
    """Refuse literals that would return as another type: symbolic numbers, subclasses of numbers or str."""
    if type(value) in {list, tuple, torch.Size}:
        for item in value:
            _check_literal(item)
    elif type(value) not in LITERAL_TYPES | {range, slice}:
        raise SaveError(f"a {type(value).__name__} has no form on disk")


def from_json(content: object, size: Callable[[Any], Any]) -> Any:
    """Return the value from which ``to_json`` made ``content``. ``size`` makes a symbolic size from its text.

    Raises:
        LoadError: if the content is malformed, or from another version.
    """
    try:
        return _read(content, size)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise LoadError(f"malformed record: {error}") from error


def _read(content: Any, size: Callable[[Any], Any]) -> Any:
    """Return the value of a JSON form whose shape is not checked: a malformed form raises any exception of Python."""
    if isinstance(content, list):
        return tuple(_read(item, size) for item in content)
    if "list" in content:
        return [_read(item, size) for item in content["list"]]
    if "size" in content:
        return size(content["size"])
    if "record" in content:
        kind = RECORDS[content["record"]]
        names = [field.name for field in fields(kind)]
        values = [_read(item, size) for item in content["fields"]]
        return kind(**dict(zip(names, values, strict=True)))
    if "enum" in content:
        return ENUMS[content["enum"]].__members__[content["name"]]
    if "view" in content:
        name = content["view"]
        if not name.endswith(VIEW):
            raise LoadError(f"{name!r:.100} is no step of a view")
        return getattr(views, name)
    return decode_constant(content["literal"])


FORMAT = 6
"""Raise this number when a record or the document changes: programs of another number are compiled anew."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A program from disk. ``plan``: None for inference. ``variant``, ``backward``: None if not stored."""

    shell: Shell
    plan: TrainingPlan | None
    variant: Variant | None
    forward: Any
    """The record of the compiled forward, or of the inference graph, as ``Store.pack`` returned it."""
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
    if not is_flat_tuple(spec):
        raise SaveError("the outputs are a nest, not a flat tuple")
    bases = [spec for spec in shell.captured.inputs if spec.members is not None]
    groups, rooted = [
        to_json(tuple(base.members for base in group))
        for group in (bases, [base for base in bases if base.is_root])
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
        if not sizes.add_guards(document["assumed"]):
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
    # The document may be damaged, or written by a version that decided otherwise about the same graph.
    fits = isinstance(info, GraphInfo) and len(info.inputs) == len(merged.inputs)
    differentiated = isinstance(variant, Variant) and backward is not None
    trains = isinstance(plan, TrainingPlan) and (differentiated or variant is backward is None)
    if not fits or not (trains or plan is None) or len(info.outputs) != spec.num_leaves:
        raise LoadError("the program is not one of this graph")
    return Stored(Shell(merged, info, spec), plan, variant, forward, backward, sizes.has_symbols)
