"""Rules for printed texts: f-strings of graph results and of strings that the trace did not read."""

from __future__ import annotations

import ast

from fxstack_capture.emit.rebuild.rebuilder import Rebuilder, Rule
from fxstack_capture.objects.printed_texts import LaterString, Piece, Text


def _piece(rebuilder: Rebuilder, piece: Piece) -> ast.expr:
    form = ast.JoinedStr([ast.Constant(piece.spec)]) if piece.spec else None
    conversion = ord(piece.conversion) if piece.conversion else -1
    return ast.FormattedValue(rebuilder.expr(piece.value), conversion, form)


def text(rebuilder: Rebuilder, obj: Text) -> ast.expr:
    parts: list[ast.expr] = []
    for part in obj.parts:
        if isinstance(part, Piece):
            parts.append(_piece(rebuilder, part))
        elif part:
            parts.append(ast.FormattedValue(rebuilder.expr(part), -1, None))
    return rebuilder.assign(ast.JoinedStr(parts), "text")


def later_string(rebuilder: Rebuilder, obj: LaterString) -> ast.expr:
    keywords = [ast.keyword(name, rebuilder.expr(value)) for name, value in obj.kwargs.items()]
    function = rebuilder.constant(obj.function, obj.function.__name__)
    return rebuilder.assign(ast.Call(function, [rebuilder.expr(arg) for arg in obj.args], keywords), "text")


RULES: dict[type, Rule] = {Text: text, LaterString: later_string}
