"""Format the user's frames as traceback text, for the metadata of nodes."""

from __future__ import annotations

import linecache

Frame = tuple[str, int, str]


class Locations:
    """Formats stacks. The text of each frame is cached."""

    def __init__(self) -> None:
        self._frames: dict[Frame, str] = {}

    def text(self, stack: tuple[Frame, ...]) -> str:
        return "".join([self._frames.get(frame) or self._format(frame) for frame in stack])

    def _format(self, frame: Frame) -> str:
        file, line, function = frame
        code = linecache.getline(file, line).strip()
        text = f'  File "{file}", line {line}, in {function}\n' + (f"    {code}\n" if code else "")
        self._frames[frame] = text
        return text
