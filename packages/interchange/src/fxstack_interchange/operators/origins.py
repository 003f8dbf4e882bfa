"""Comments by which generated code names the captured nodes, so that errors can name the program's line."""

from typing import Final

ORIGIN: Final = "# captured node "
"""The comment at the end of a line, before the name of the node."""

SOURCE: Final = "__fxstack_source__"
"""Global variable of generated code that holds the code's source text."""
