"""The settings of torch's compiler in words: what each of them does here."""

from __future__ import annotations

from dataclasses import dataclass

from fxstack.torch_options import INDUCTOR, names_of_torch
from fxstack_interchange.torch_facts.torch_settings import TABLES, Meaning, Ours, Same, meaning


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    """A setting of torch, or a group of settings (``triton.*``), and what it does here."""

    module: str
    name: str
    has_effect: bool
    text: str


def described_settings() -> list[DescribedSetting]:
    """Return all settings that fxstack knows, by module. Those of inductor are the installed torch's."""
    names = {module: set(table) for module, table in TABLES.items()}
    names[INDUCTOR] |= names_of_torch()
    return [
        DescribedSetting(module, name, isinstance(row, Same), _text(row))
        for module, of_module in names.items()
        for name in sorted(of_module)
        if (row := meaning(module, name)) is not None
    ]


def _text(meaning: Meaning) -> str:
    if isinstance(meaning, Ours):
        return f"sets the option {meaning.option}: {meaning.because}"
    if isinstance(meaning, Same):
        return f"sets the option {meaning.option}"
    if meaning.except_for is not None:
        return f"no effect unless it is {meaning.except_for!r}, which is what happens here: {meaning.because}"
    return f"no effect: {meaning.because}"
