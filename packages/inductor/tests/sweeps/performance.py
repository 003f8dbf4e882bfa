"""Random fused programs timed in eager, with torch.compile's code generator and with this package's, in one process.

    python packages/inductor/tests/sweeps/performance.py [--start 0] [--count 1000] [--threads 1] [--elements 1000000]
        [--no-torch] [--out FILE] [--dry]

The systems take turns; a figure is the median of the rounds. A program that is slower than another system is measured again
with three times the rounds, and the second figure counts. ``--out`` gets a line of JSON for each program, and a program that it
has is not measured again. Prints the distribution of the ratios (above 1: this package is faster), and the ten worst programs
beside each system with their text and the kernels that they became. Values are compared with eager's, roughly: this sweep looks
for time, others look for errors.
"""

import argparse
import ctypes
import json
import math
import statistics
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[4] / "testing"))

import kernels
import torch
from result_tables import conditions
from timed_programs import program

import fxstack_inductor as fi

warnings.filterwarnings("ignore")
SYSTEMS = {"eager": kernels.eager, "torch": kernels.theirs, "ours": kernels.ours}
NAMES = {"eager": "eager", "torch": "torch.compile"}
ROUNDS, SECONDS = 5, 0.03
TOLERANCE = {"bfloat16": 0.05, "float32": 1e-3, "float64": 1e-9, "int64": 0.0}


def keep_freed_memory():
    """Let glibc keep all memory that a program frees.

    Else the order of all allocations decides which system gets new pages in each call, and new pages can take longer than a
    kernel: a depthwise convolution of 29 MB took 18 or 65 ms.
    """
    mallopt = ctypes.CDLL(None).mallopt
    no_mapping, trim = (-4, 0), (-1, 2**31 - 1)
    assert mallopt(*no_mapping) == mallopt(*trim) == 1


def close(got, want, exact, dtype):
    """Whether results are about as close as eager's to those of float64."""
    for g, w, e in zip(got, want, exact, strict=True):
        ours, eager = ((x.double() - e.double()).abs().nan_to_num(0, 0, 0).amax() for x in (g, w))
        if ours > 2 * eager + TOLERANCE[dtype] * (1 + e.double().abs().nan_to_num(0, 0, 0).amax()):
            return False
    return True


def in_double(inputs):
    """Inputs in float64, for the exact values."""
    return [x.double() if x.is_floating_point() else x for x in inputs]


def timed(calls, rounds, clock):
    """Median seconds of a call for each system; the systems take turns."""
    found = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            found[who].append(kernels.timed(call, clock, SECONDS))
    return {who: statistics.median(seconds) for who, seconds in found.items()}


def measure(seed, args):
    """The record of one program: seconds by system, or why there are none."""
    case = program(seed, args.elements)
    function, inputs = case.function(), case.inputs()
    record = {
        "seed": seed,
        "elements": args.elements,
        "threads": args.threads,
        "dtype": case.dtype,
        "shape": case.shape,
    }
    calls = {}
    for who, make in SYSTEMS.items():
        if who == "torch" and not args.torch:
            continue
        try:
            calls[who] = make(function, inputs)
            got = list(calls[who]())
        except Exception as error:
            if who != "torch":
                return record | {"failed": f"{who}: {type(error).__name__}: {str(error)[:300]}"}
            calls.pop(who, None)
            continue
        if who == "eager":
            want = got
        elif who == "ours" and not close(got, want, function(*in_double(inputs)), case.dtype):
            record["differs"] = True
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    seconds = timed(calls, args.rounds, clock)
    if seconds["ours"] > min(seconds.values()):
        seconds = timed(calls, 3 * args.rounds, clock)
    return record | {"seconds": seconds}


def distribution(name, ratios):
    """One line: the mean, the quantiles, and how many are below 1 and below 0.9."""
    values = sorted(ratios)
    mean = math.exp(statistics.fmean(map(math.log, values)))
    at = lambda share: values[min(len(values) - 1, int(share * len(values)))]
    below = [100 * sum(v < bound for v in values) / len(values) for bound in (1.0, 0.9)]
    quantiles = " ".join(f"{share:.0%} {at(share):.2f}" for share in (0.0, 0.01, 0.1, 0.5, 0.9))
    shares = f"below 1.0 {below[0]:.1f}%, below 0.9 {below[1]:.1f}%"
    print(f"{name} / fxstack: geometric mean {mean:.2f} of {len(values)}; {quantiles}; {shares}")


def kernels_of(case):
    """The steps of the program's schedule: the operators of each kernel, and the calls of ATen."""
    inputs = case.inputs()
    graph = kernels.graph_of(case.function(), inputs, fi.decompositions())
    plan = fi.compile_graph(graph, inputs, inference=True, check_arguments=False).lowered.plan
    made = [" ".join(step.kernel.origins) if hasattr(step, "kernel") else step.name for step in plan.steps]
    return [text for text in made if text]


def report(records):
    """Print the distributions and the worst programs."""
    good = [r for r in records if "seconds" in r]
    for who, name in NAMES.items():
        ratios = {r["seed"]: r["seconds"][who] / r["seconds"]["ours"] for r in good if who in r["seconds"]}
        if not ratios:
            continue
        distribution(name, ratios.values())
        for seed in sorted(ratios, key=ratios.get)[:10]:
            case = program(seed, next(r["elements"] for r in good if r["seed"] == seed))
            print(
                f"\n{ratios[seed]:.2f} of {name}: seed {seed}, {case.dtype} {case.shape}, {', '.join(case.layouts)}"
            )
            print(case.text, "kernels: ", " | ".join(kernels_of(case)), sep="")
    for r in records:
        if "failed" in r or "differs" in r:
            print(f"seed {r['seed']}: {r.get('failed', 'other values than eager')}")
    print(conditions())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--no-torch", dest="torch", action="store_false")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    if args.dry:
        args.count, args.elements, args.torch, args.rounds = 3, 1000, False, 1
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    lines = args.out.read_text().splitlines() if args.out and args.out.exists() else []
    records = [json.loads(line) for line in lines]
    done = {(r["seed"], r["elements"], r["threads"]) for r in records}
    for seed in range(args.start, args.start + args.count):
        if (seed, args.elements, args.threads) in done:
            continue
        records.append(measure(seed, args))
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(records[-1]) + "\n")
    report(records)


if __name__ == "__main__":
    main()
