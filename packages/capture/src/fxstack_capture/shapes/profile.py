"""Shape profiles: the observed numbers of all functions, for the next process or for merging over ranks.

A profile maps functions to histories. The key of a function is its name and a hash of its bytecode. Therefore
a profile stays valid in another directory, and does not apply to an edited function. Profiles can be merged
in any order and any number of times, like histories.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import CodeType

from fxstack_capture.shapes.history import FrameHistory

_VERSION = 1


def key_of(code: CodeType) -> str:
    """Return the key of a function's history: its qualified name and a hash of its bytecode.

    An edited version of the function has another key.
    """
    parts = (code.co_code, repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    digest = sha256(b"\0".join(parts)).hexdigest()[:16]
    return f"{code.co_qualname} {digest}"


class ShapeProfile:
    """Histories by function. A profile is immutable: merging makes a new profile."""

    def __init__(self, histories: Mapping[str, FrameHistory] | None = None) -> None:
        self._histories = dict(histories or {})

    def history_of(self, code: CodeType) -> FrameHistory:
        """Return a copy of the history of ``code``, or an empty history if the profile lacks the function.

        The driver begins with this history when it first compiles the function.
        """
        return FrameHistory().merged(self._histories.get(key_of(code), FrameHistory()))

    def merged(self, *others: ShapeProfile) -> ShapeProfile:
        """Return the join of several profiles (of calls, processes or ranks)."""
        result = dict(self._histories)
        for other in others:
            for key, history in other._histories.items():
                result[key] = result.get(key, FrameHistory()).merged(history)
        return ShapeProfile(result)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeProfile) and self._histories == other._histories

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._histories)

    def to_json(self) -> str:
        """Return canonical text: equal profiles give equal texts."""
        functions = {key: json.loads(history.to_json()) for key, history in sorted(self._histories.items())}
        return json.dumps({"version": _VERSION, "functions": functions}, indent=1, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> ShapeProfile:
        """Return the profile from a text of ``to_json``. Raises ValueError for any other text."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("version") != _VERSION:
            raise ValueError(f"not a shape profile of version {_VERSION}")
        functions = data.get("functions")
        if not isinstance(functions, dict):
            raise ValueError("a shape profile has an object of functions")  # noqa: TRY004
        return ShapeProfile(
            {key: FrameHistory.from_json(json.dumps(values)) for key, values in functions.items()}
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile. The write is atomic: the file appears complete or not at all."""
        target = Path(path)
        handle, name = tempfile.mkstemp(prefix=target.name, suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(self.to_json())
        Path(name).replace(target)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> ShapeProfile:
        """Read a profile.

        Raises:
            OSError: the file does not exist.
            ValueError: the file does not contain a profile. The message names the file.
        """
        try:
            return ShapeProfile.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not a shape profile: {error}") from error
