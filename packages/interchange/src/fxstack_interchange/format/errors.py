"""The errors of the format. Each message states the defect, its place and the correction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MAX_MESSAGE_LENGTH = 500
"""Limit of characters in a message of ``load``, which a damaged file must not make longer."""


class InterchangeError(ValueError):
    """Base class of every error that this package raises on purpose."""


class SaveError(InterchangeError):
    """A graph holds a value that the format cannot express. The message names the node and the value."""


class LoadError(InterchangeError):
    """A file is damaged, malicious or of another version. The message names the defect."""


@contextmanager
def checking(part: str, reraised: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn exceptions into a short ``LoadError`` that names the checked part, except exceptions of types in ``reraised``."""
    try:
        yield
    except reraised:
        raise
    except Exception as error:
        text = str(error) if isinstance(error, LoadError) else f"{type(error).__name__}: {error}"
        text = f"{part}: {text}"
        shortened = text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[: MAX_MESSAGE_LENGTH - 3]}..."
        raise LoadError(shortened) from error


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation of a rule: the node, the rule, the message, and the line of the user's program."""

    node: str | None
    rule: str
    message: str
    user_line: str | None = None

    def __str__(self) -> str:
        where = f"node {self.node!r}" if self.node is not None else "graph"
        line = f"\n    from {self.user_line}" if self.user_line else ""
        return f"{where} breaks rule {self.rule!r}: {self.message}{line}"


class VerificationError(InterchangeError):
    """A stage graph violates rules of its stage. ``violations`` lists all violations."""

    def __init__(self, stage: str, violations: tuple[Violation, ...]) -> None:
        self.violations = violations
        shown = "\n  ".join(str(item) for item in violations[:20])
        more = f"\n  ... and {len(violations) - 20} more" if len(violations) > 20 else ""
        super().__init__(f"this is not a well-formed {stage} graph:\n  {shown}{more}")
