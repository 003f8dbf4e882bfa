"""Shape profiles: what was seen of every function's numbers, to be kept for the next process or joined over ranks.

A profile maps functions to histories. A function is known by its name and a hash of its bytecode, so that a profile
means the same in another directory, and nothing for a function that was edited. Profiles join as histories do:
in any order, as often as one likes.
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
    """The name under which a function's history is kept."""
    parts = (code.co_code, repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    digest = sha256(b"\0".join(parts)).hexdigest()[:16]
    return f"{code.co_qualname} {digest}"


class ShapeProfile:
    """Histories by function; a value: joining makes a new one."""

    def __init__(self, histories: Mapping[str, FrameHistory] | None = None) -> None:
        self._histories = dict(histories or {})

    def history_of(self, code: CodeType) -> FrameHistory:
        """A history of its own for ``code`` to go on from; empty for a function that is not in the profile."""
        return FrameHistory().merged(self._histories.get(key_of(code), FrameHistory()))

    def merged(self, *others: ShapeProfile) -> ShapeProfile:
        """The join of several profiles (of calls, processes or ranks)."""
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
        """Canonical text: equal profiles give equal bytes."""
        functions = {key: json.loads(history.to_json()) for key, history in sorted(self._histories.items())}
        return json.dumps({"version": _VERSION, "functions": functions}, indent=1, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> ShapeProfile:
        """The inverse of ``to_json``; raises ValueError for anything else."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("version") != _VERSION:
            raise ValueError(f"not a shape profile of version {_VERSION}")
        functions = data.get("functions")
        if not isinstance(functions, dict):
            raise ValueError("a shape profile has an object of functions")  # noqa: TRY004
        return ShapeProfile(
            {key: FrameHistory.from_json(json.dumps(seen)) for key, seen in functions.items()}
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile; the file is there as a whole or not at all."""
        target = Path(path)
        handle, name = tempfile.mkstemp(prefix=target.name, suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(self.to_json())
        Path(name).replace(target)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> ShapeProfile:
        """Read a profile.

        Raises:
            OSError: There is no such file.
            ValueError: It does not hold a profile; names the file.
        """
        try:
            return ShapeProfile.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not a shape profile: {error}") from error
