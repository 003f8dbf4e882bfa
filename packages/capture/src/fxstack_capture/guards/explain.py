"""The reason why an entry does not fit a call: the failed guard, the old and new value, the user's line."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType
from typing import Any, Final

from fxstack_capture.bytecode.arguments import argument_names
from fxstack_capture.guards.accesses import MISSING, RealFrame, frame_of_call, read
from fxstack_capture.guards.records import Guard
from fxstack_capture.guards.text import python_name, readable_name
from fxstack_capture.sources import InstanceAttr, InstanceDict, Key, Source
from fxstack_interchange.user_warnings import belongs_to_torch

# Medians of benchmarks/guards.py, in nanoseconds (docs/results/overhead.md).
_OF_READS: Final[dict[type[Source], int]] = {Key: 25, InstanceAttr: 14, InstanceDict: 10}
"""Maps a class of sources to the time in nanoseconds of the last access of such a source."""
_OTHER_READ: Final = 3
"""The time in nanoseconds of the last access of a source of any other class."""


@dataclass(frozen=True, slots=True)
class GuardFailure:
    """One guard that does not hold: the cheapest check that failed. Later checks have not run.

    ``guard`` is None if the entry is dead, because an object on which the entry depends no longer exists.
    """

    guard: Guard | None
    """The guard, or None for a dead entry."""
    demanded: str
    """The phrase that follows the name of the value, for example "must be of type int"."""
    found: str
    """The phrase about the value of this call, for example "it is a str"."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """For a call of a module: maps each source to the parameter of ``forward``, for example "args[0]" to "x".

    The dictionary is empty for other calls.
    """

    @property
    def source_name(self) -> str:
        """The name of the guarded value as messages show it, for example ``x`` or ``self.weight``.

        "" for a dead entry.
        """
        name = self.guard.source.name if self.guard is not None else ""
        for of, named in self.renamed.items():
            if re.match(re.escape(of) + r"(?!\w)", name):
                name = named + name.removeprefix(of)
                break
        return readable_name(name)

    @property
    def user_line(self) -> str:
        """The user's innermost line that caused the guard, as ``file:line in function``, or "" if unknown.

        A line in torch is named only if the program compiled the function of torch itself.
        """
        return "{}:{} in {}".format(*self.user_frame) if self.user_frame else ""

    @property
    def user_frame(self) -> tuple[str, int, str] | None:
        """The file, line and function of ``user_line``, or None if they are unknown."""
        stack = self.guard.stack if self.guard is not None else ()
        own = [frame for frame in stack if not belongs_to_torch(frame[0])]
        if not own and (not stack or "_call_impl" in stack[-1][2]):
            return None
        return (own or stack)[-1]

    @property
    def message(self) -> str:
        """The whole failure as one line.

        For example "x: must be of type int, but it is a str (needed by f.py:3 in f)".
        """
        if self.guard is None:
            return "the compiled code depends on an object that no longer exists"
        where = f" (needed by {self.user_line})" if self.user_line else ""
        return f"{self.source_name}: {self.demanded}, but {self.found}{where}"


def guard_condition(guard: Guard, names: Mapping[str, str]) -> str:
    """Return a guard as a Python condition, for example ``type(x) is int``. Traces and exported guards show it.

    ``names`` maps names of sources to parameters of ``forward`` (see ``GuardFailure.renamed``).
    """
    condition = guard.check.condition(python_name(guard.source.name))
    for of, named in names.items():
        condition = re.sub(rf"(?<![\w.]){re.escape(of)}(?!\w)", named, condition)
    return condition


def needed_at(guard: Guard) -> str:
    """Return the user's line that needed a guard, as ``file:line: text of the line``, or "" if it is unknown."""
    found = GuardFailure(guard, "", "").user_frame
    if found is None:
        return ""
    text = linecache.getline(found[0], found[1]).strip()
    return f"{found[0]}:{found[1]}" + (f": {text}" if text else "")


def guard_text(guard: Guard, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a guard as a Python condition with a comment, ``type(x) is int # needed at f.py:3: return x +
    1``.

    Debugging output prints this text. For ``names``, see ``guard_condition``.
    """
    where = needed_at(guard)
    return guard_condition(guard, names) + (f"  # needed at {where}" if where else "")


def estimated_nanoseconds(guard: Guard) -> int:
    """Return the estimated time of a guard in nanoseconds: the check, and the last access to the checked
    value.

    Accesses before the last are not counted, because guards share them. Traces show the estimate of each
    guard.
    """
    return guard.check.nanoseconds + _OF_READS.get(type(guard.source), _OTHER_READ)


def first_failure(tree: Any, func: FunctionType, local_values: Mapping[str, object]) -> GuardFailure | None:
    """Return the failing guard of a tree for a call with these arguments, or None if all guards hold.

    Reports about recompilations call this function. ``local_values`` maps each parameter of ``func`` to a value.
    """
    arguments = tuple(local_values[name] for name in argument_names(func.__code__))
    index = tree.failing(func, arguments)
    if index < 0:
        return None
    if index >= len(tree.meta):
        return GuardFailure(None, "", "")
    guard = tree.meta[index]
    frame = frame_of_call(func, dict(local_values))
    return GuardFailure(guard, guard.check.demand(), _found(guard, frame))


def _found(guard: Guard, frame: RealFrame) -> str:
    """Return the phrase about the value that fails ``guard`` (``GuardFailure.found``)."""
    value = read(guard.source, frame)
    if value is MISSING:
        return "it does not exist"
    try:
        return guard.check.describe(value, lambda source: read(source, frame))
    except Exception as error:  # The program's classes may raise in len, keys or attribute access.
        return f"showing the value raised {type(error).__name__}"
