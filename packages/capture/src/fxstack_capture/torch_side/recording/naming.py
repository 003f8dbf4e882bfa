"""Readable names of placeholders: from where an input was found to a Python identifier."""

from __future__ import annotations

import re

from fxstack_capture.sources import Source

_NOT_IDENTIFIER = re.compile(r"\W+")
_REPEATED = re.compile(r"_{2,}")


def placeholder_name(source: Source) -> str:
    """``self._modules['fc']._parameters['weight']`` -> ``l_self_modules_fc_parameters_weight``."""
    words = _NOT_IDENTIFIER.sub("_", source.name)
    return "l_" + _REPEATED.sub("_", words).strip("_")
