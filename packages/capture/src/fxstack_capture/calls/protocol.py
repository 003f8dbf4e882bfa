"""``DispatcherProtocol``: what the parts of ``calls`` use of the dispatcher that they are parts of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fxstack_capture.trace.seams import Calls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fxstack_capture.calls.table import Rule
    from fxstack_capture.objects.object_model import ObjectModel
    from fxstack_capture.trace.state import Trace


class DispatcherProtocol(Calls, Protocol):
    @property
    def objects(self) -> ObjectModel: ...

    @property
    def trace(self) -> Trace: ...

    def is_leaf(self, fn: Any) -> bool:
        """``trace.torch.is_leaf``, asked once per callable."""

    def rule_of(self, fn: Any) -> Rule | None:
        """The rule of a callable; of a function written in Python, as long as it has its code."""

    @property
    def forwards(self) -> Mapping[int, Any]: ...

    @property
    def rules(self) -> Mapping[int, Any]: ...
