"""Names of placeholders: a source as a readable Python identifier."""

from __future__ import annotations

import re

from fxstack_capture.sources import Source

_NOT_IDENTIFIER = re.compile(r"\W+")
_REPEATED = re.compile(r"_{2,}")


def placeholder_name(source: Source) -> str:
    """Return ``l_self_modules_fc_parameters_weight`` for ``self._modules['fc']._parameters['weight']``."""
    words = _NOT_IDENTIFIER.sub("_", source.name)
    return "l_" + _REPEATED.sub("_", words).strip("_")
