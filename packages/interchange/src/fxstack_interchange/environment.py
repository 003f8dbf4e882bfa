"""Options that environment variables set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from fxstack_interchange.user_warnings import warn_user


class Variable(NamedTuple):
    """An environment variable that sets an option."""

    name: str
    option: str
    """The name of the field that the variable sets."""
    parse: Callable[[str], Any]
    """Function from the variable's text to the option's value. It raises ValueError for a text without meaning."""
    expected: str = "a value that it takes"
    """The texts that ``parse`` takes, for the warning."""


def read_environment(
    variables: Iterable[Variable], environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return option name -> value, for each variable that is set in ``environ`` (None: in this process).

    A text without meaning causes a warning and sets nothing.
    """
    source = os.environ if environ is None else environ
    options = {}
    for variable in variables:
        if (text := source.get(variable.name)) is None:
            continue
        try:
            options[variable.option] = variable.parse(text)
        except ValueError:
            message = (
                f"fxstack: the environment variable {variable.name} is {text[:100]!r}, which has no meaning."
            )
            fix = f"The default is used: set it to {variable.expected}, or unset it."
            warn_user(f"{message} {fix}", UserWarning)
    return options
