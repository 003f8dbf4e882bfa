"""How generated code names the captured nodes that it runs, so that an error can name the line of the program."""

from typing import Final

ORIGIN: Final = "# captured node "
"""The comment at the end of a line, before the name of the node."""

SOURCE: Final = "__fxstack_source__"
"""The name of the text in the namespace of the generated code."""
