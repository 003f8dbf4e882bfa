"""Records as JSON: frozen dataclasses of this package, enumerations, view steps, and literals of graphs.

A symbolic size is a text over the symbols of the inputs (``sizes``). A value without JSON form (an object of
the program) raises ``SaveError``, so that its program is not kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from fxstack_functionalize.metadata.examples import TensorMeta
from fxstack_functionalize.metadata.records import GraphInfo, InputInfo, OutputInfo, OutputSource, Relayout
from fxstack_functionalize.metadata.replay import AliasInfo, AliasSource, Detachment
from fxstack_functionalize.runtime.backward.backwards import Variant
from fxstack_functionalize.runtime.backward.output_edges import Refusals
from fxstack_functionalize.runtime.backward.saved import SavedTensor
from fxstack_functionalize.runtime.plan import TangentPlan, TrainingPlan
from fxstack_functionalize.torch_compat import functionalization as views
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


def to_json(value: Any) -> Any:
    """Return ``value`` as JSON.

    Raises:
        SaveError: if ``value`` or a part of it has no JSON form.
    """
    if type(value) is tuple:
        return [to_json(item) for item in value]
    if type(value) is list:
        return {"list": [to_json(item) for item in value]}
    if type(value) is torch.SymInt:
        return {"size": to_text(value.node.expr)}
    if is_dataclass(value) and type(value).__name__ in RECORDS:
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
