"""Tables of what ``cuda_compare.py`` recorded: launches, bytes, peaks, predicted times, and the slowest kernels."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import cuda_measured
import cuda_predict
import cuda_work
from result_tables import MARKDOWN, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cuda_predict import Constants
    from cuda_work import Work, Works

SYSTEMS = ("torch.compile", "fxstack")
SHOWN, PARTS = 8, 6
"""How many models' kernels are listed, and how many of each."""
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Step:
    """The work of one recorded step, and the bytes that it allocates beyond what it begins with."""

    works: tuple[Work, ...]
    peak: int

    def seconds(self, constants: Constants) -> float:
        return sum(cuda_predict.seconds(w, constants) for w in self.works)

    def launches(self) -> str:
        count = Counter(w.kind for w in self.works)
        parts = [f"{count[k]} {k[:4]}" for k in cuda_work.KINDS if count[k]]
        return f"{len(self.works)} ({', '.join(parts)})"

    @property
    def moved(self) -> float:
        return sum(w.moved for w in self.works)


def steps(folder: Path, works: Works) -> tuple[dict[Key, dict[str, Step]], list[str]]:
    """The recorded steps by model, mode, dtype and system; and what failed."""
    found: dict[Key, dict[str, Step]] = {}
    failed = []
    for path in sorted(folder.glob("*.json")):
        row = json.loads(path.read_text())
        if "error" in row:
            words = [row[k] for k in ("model", "mode", "dtype", "system", "error")]
            failed.append(" ".join(words)[:200])
        if "launches" in row:
            key = (row["model"], row["mode"], row["dtype"])
            found.setdefault(key, {})[row["system"]] = step(row, works)
    return found, failed


def step(row: dict[str, Any], works: Works) -> Step:
    """What a library's call moves is shared by the kernels of that call."""
    calls = Counter((launch.get("op") or {}).get("call") for launch in row["launches"])
    made = []
    for launch in row["launches"]:
        work, count = works.of(launch), calls[(launch.get("op") or {}).get("call")]
        shared = work.kind == "library" and (launch["op"] or {}).get("call")
        made.append(replace(work, moved=work.moved / count, touched=work.touched / count) if shared else work)
    return Step(tuple(made), row["peak"])


def measured(
    folder: Path, works: Works, found: dict[Key, dict[str, Step]]
) -> dict[str, tuple[Sequence[Work], float]]:
    """The work of everything that a GPU has measured, with the seconds it took, by name."""
    made: dict[str, tuple[Sequence[Work], float]] = {}
    times = {**cuda_measured.KERNELS, **cuda_measured.PRODUCTS}
    for place, system in enumerate(SYSTEMS):
        path = folder / f"cases_infer_bfloat16_{system}.json"
        cases = json.loads(path.read_text()).get("cases", {}) if path.exists() else {}
        for name, row in cases.items():
            made[f"{name}, {system}"] = (step(row, works).works, times[name][place] / 1e3)
        for name, both in cuda_measured.MODELS.items():
            model = found.get((f"zoo/{name}", "train", "bfloat16"), {}).get(system)
            if model is not None:
                made[f"{name}, {system}"] = (model.works, both[place] / 1e3)
    return made


def calibrated(cases: dict[str, tuple[Sequence[Work], float]]) -> Constants:
    """The constants fitted to what was measured; prints how far the prediction is off."""
    if not cases:
        return cuda_predict.H100
    constants = cuda_predict.fitted([*cases.values()])
    errors = [math.expm1(e) for e in cuda_predict.errors([*cases.values()], constants)]
    worst = sorted(zip(map(abs, errors), errors, cases, strict=True), reverse=True)[:4]
    median = statistics.median(map(abs, errors))
    print(f"Prediction beside {len(cases)} measured times: median error {100 * median:.0f}%, worst", end=" ")
    print(", ".join(f"{100 * e:+.0f}% ({name})" for _, e, name in worst) + ".\n")
    return constants


def constants_of(folder: Path) -> Constants:
    """The constants fitted to the recordings in ``folder`` of what a GPU has measured."""
    works = cuda_work.Works(folder)
    found, _ = steps(folder, works)
    constants = calibrated(measured(folder, works, found))
    works.save()
    return constants


def report(folder: Path, fit: Path | None = None) -> None:
    """Print the tables of ``folder``; times are predicted with constants fitted to the recordings in ``fit``, or in it."""
    constants = constants_of(fit or folder)
    works = cuda_work.Works(folder)
    found, failed = steps(folder, works)
    works.save()
    pairs = {
        key: (both[SYSTEMS[0]], both[SYSTEMS[1]]) for key, both in found.items() if len(both) == len(SYSTEMS)
    }
    tabulate(pairs, constants)
    for line in [*means(pairs, constants), *(f"Not recorded: {text}" for text in failed)]:
        print(line)
    for text in worst(pairs, constants):
        print(text)


def tabulate(pairs: dict[Key, tuple[Step, Step]], constants: Constants) -> None:
    """One row for each model and setting; the first of two figures is torch.compile's."""
    table = Table(
        "model",
        "launches",
        "fxstack",
        "MB",
        "fxstack",
        "peak MiB",
        "fxstack",
        "H100 us",
        "fxstack",
        "ratio",
        "H200",
        packages=("triton", "transformers"),
    )
    other = cuda_predict.h200(constants)
    for key, (theirs, ours) in sorted(pairs.items(), key=lambda item: item[0][::-1]):
        first, second = theirs.seconds(constants), ours.seconds(constants)
        table.row(
            " ".join(key),
            theirs.launches(),
            ours.launches(),
            *(f"{s.moved / 1e6:.1f}" for s in (theirs, ours)),
            *(f"{s.peak / 2**20:.1f}" for s in (theirs, ours)),
            *(f"{t * 1e6:.0f}" for t in (first, second)),
            f"{second / first:.2f}",
            f"{ours.seconds(other) / theirs.seconds(other):.2f}",
        )


def means(pairs: dict[Key, tuple[Step, Step]], constants: Constants) -> Iterable[str]:
    """Geometric means of fxstack's figures divided by torch.compile's, by mode and dtype."""
    yield ""
    for setting in sorted({key[1:] for key in pairs}):
        chosen = [both for key, both in pairs.items() if key[1:] == setting]
        ratios = {
            "launches": [len(b.works) / len(a.works) for a, b in chosen],
            "bytes": [b.moved / a.moved for a, b in chosen],
            "peak": [b.peak / a.peak for a, b in chosen if a.peak and b.peak],
            "time": [b.seconds(constants) / a.seconds(constants) for a, b in chosen],
        }
        texts = [f"{name} {statistics.geometric_mean(r):.2f}" for name, r in ratios.items() if r]
        yield f"{' '.join(setting)}, {len(chosen)} models, fxstack / torch.compile: {', '.join(texts)}."


def worst(pairs: dict[Key, tuple[Step, Step]], constants: Constants) -> Iterable[str]:
    """What takes most of the predicted time where fxstack is slowest, by system."""

    def ratio(key: Key) -> float:
        theirs, ours = pairs[key]
        return ours.seconds(constants) / theirs.seconds(constants)

    for key in sorted(pairs, key=ratio, reverse=True)[:SHOWN]:
        yield f"\n{' '.join(key)}, ratio {ratio(key):.2f}:" + ("\n" if MARKDOWN else "")
        for system, made in zip(SYSTEMS, pairs[key], strict=True):
            yield f"- {system}: {'; '.join(_largest(made, constants))}"


def _largest(made: Step, constants: Constants) -> list[str]:
    times: Counter[tuple[str, str]] = Counter()
    count: Counter[tuple[str, str]] = Counter()
    for work in made.works:
        label = (work.kind, work.name[:60] if work.own else work.name[:30])
        times[label] += cuda_predict.seconds(work, constants)
        count[label] += 1
    return [f"{count[k]} x {k[1]} ({k[0]}) {t * 1e6:.1f} us" for k, t in times.most_common(PARTS)]
