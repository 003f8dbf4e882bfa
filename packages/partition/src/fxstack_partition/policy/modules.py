"""Recompute tags on modules: a policy that tags a node by the modules around its call.

options = PartitionOptions(policy=by_module({"BertLayer": "must_recompute", "BertSelfAttention":
"prefer_save"}))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch.fx import Node

_FORWARD = re.compile(r'File "[^"]*", line \d+, in (?:\S*\.)?(\w+)\.forward\b')


def by_module(tags: Mapping[str, str]) -> Callable[[Node], str | None]:
    """Return a ``PartitionOptions.policy`` that tags nodes by the modules in which they were called.

    ``tags`` maps names of module classes, or patterns of paths (``"layers.*"``, as in ``named_modules``), to
    tags. Nodes of captured graphs have paths and classes (``nn_module_stack``). Nodes of other graphs may have only
    class names, from their stack traces. The innermost module with a tag decides.
    """

    def policy(node: Node) -> str | None:
        """Return the tag of the innermost module around ``node`` that matches a pattern; None if no module matches."""
        for names in reversed(modules_around(node)):
            for name in names:
                for pattern, tag in tags.items():
                    if fnmatchcase(name, pattern):
                        return tag
        return None

    return policy


def modules_around(node: Node) -> list[tuple[str, ...]]:
    """Return the names of each module that was running when the node was called, outermost module first.

    A name is (path, class), or only (class,) if the node has a stack trace but no module stack.
    """
    stack: Any = node.meta.get("nn_module_stack")
    if stack:
        return [(path, _class_name(kind)) for path, kind in stack.values()]
    trace = node.meta.get("stack_trace")
    return [(name,) for name in _FORWARD.findall(trace)] if isinstance(trace, str) else []


def _class_name(kind: object) -> str:
    text = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return text.rpartition(".")[2]
