"""The type of a rule: (rebuilder, object) -> expression. The rule first emits what the expression needs."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from fxstack_capture.emit.rebuild.protocol import RebuilderProtocol

Rule = Callable[["RebuilderProtocol", Any], ast.expr]
