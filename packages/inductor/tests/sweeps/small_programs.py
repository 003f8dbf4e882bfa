"""The kinds of C kernels (``helpers/c_kernels.py``) and random programs of small tensors, beside eager.

    python packages/inductor/tests/sweeps/small_programs.py [--start 0] [--count 60] [--elements 1000] [--threads 1,3]
        [--grain 16] [--optimization 1] [--compilers gcc] [--dry]

The programs are those of ``performance.py``, whose values are compared in the same way. Prints each difference, and totals.
"""

import argparse
import shutil
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import torch
from c_kernels import PROGRAMS
from inductor_checks import check, trace
from performance import close, in_double
from timed_programs import program

import fxstack_inductor as fi

warnings.filterwarnings("ignore")


def kind(name, options):
    """Raise an error where a kind of kernel differs from eager."""
    function, *inputs = PROGRAMS[name]
    check(function, *inputs, options=options)


def random_program(seed, elements, options):
    """Raise an error where a random program differs from eager."""
    case = program(seed, elements)
    function, inputs = case.function(), case.inputs()
    compiled = fi.compile_graph(trace(function, *inputs), inputs, options)
    got, want, exact = compiled(*inputs), function(*inputs), function(*in_double(inputs))
    assert close(got, want, exact, case.dtype), case.text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--elements", type=int, default=1000)
    parser.add_argument("--threads", default="1,3")
    parser.add_argument("--grain", type=int, default=16)
    parser.add_argument("--optimization", type=int, default=1)
    parser.add_argument("--compilers", default="gcc")
    parser.add_argument("--dry", action="store_true", help="three kinds and a program")
    args = parser.parse_args()
    kinds, seeds = [*PROGRAMS], range(args.start, args.start + args.count)
    if args.dry:
        kinds, seeds = kinds[:3], range(1)
    start, found, count = time.time(), 0, 0
    for compiler in filter(shutil.which, args.compilers.split(",")):
        options = fi.InductorOptions(
            optimization=args.optimization,
            use_cache=False,
            grain=args.grain,
            compiler=compiler,
            raise_failures=True,
        )
        cases = [(name, lambda name=name: kind(name, options)) for name in kinds]
        cases += [(s, lambda s=s: random_program(s, args.elements, options)) for s in seeds]
        for threads in map(int, args.threads.split(",")):
            torch.set_num_threads(threads)
            for name, case in cases:
                count += 1
                try:
                    case()
                except Exception as error:  # noqa: BLE001 - each is a find
                    found += 1
                    print(
                        f"{compiler}, {threads} threads, {name}: {type(error).__name__}: {str(error)[:160]}",
                        flush=True,
                    )
    print(f"{count} programs, {found} differences, {time.time() - start:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
