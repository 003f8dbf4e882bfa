"""Each innermost loop of generated C has a claim, and the reports of GCC and clang agree with the claims."""

import platform
import re
import shutil

import pytest
from c_kernels import PROGRAMS
from inductor_checks import FAST, trace
from vector_report import vector_lines

import fxstack_inductor as fi
from fxstack_inductor.codegen.c.claims import Claim
from fxstack_inductor.codegen.c.sharing import VECTOR_FUNCTIONS
from fxstack_inductor.runtime.parts import PART

BY_MACHINE = {Claim.SHORT, Claim.CONVERSION}
"""What becomes of such loops depends on the processor."""
CALLS_OF_CLANG = re.compile(rf"\b(?!(exp|erf|tanh)f\()({'|'.join(VECTOR_FUNCTIONS)})f?\(|logaddexp_")
"""clang calls no vector math; it may or may not put calls of scalar functions into a vector loop."""
STRIDED = {"interleaved"}
"""GCC makes no vectors of two loads of one buffer whose points lie seven elements apart; copies take longer."""


def loops(text):
    """(claim, first line, last line) of each innermost loop over elements; lines count from 1."""
    lines = text.splitlines()
    heads = [k for k, line in enumerate(lines) if re.match(r"\s*for \(.*\{$", line)]
    for k in heads:
        indent = lines[k][: len(lines[k]) - len(lines[k].lstrip())]
        end = next(e for e in range(k, len(lines)) if lines[e] == indent + "}")
        if k >= text.partition(PART)[0].count("\n") and not any(k < other < end for other in heads):
            claim = re.search(r"/\* (.*) \*/", lines[k - 1])
            yield claim and Claim(claim[1]), k + 1, end + 1


def contradictions(name, compiler, folder):
    """The claims of a program's loops that a compiler contradicts."""
    function, *inputs = PROGRAMS[name]
    text = fi.lower(trace(function, *inputs), options=FAST).c
    reported = vector_lines(text, compiler, folder)
    found = []
    for claim, first, last in loops(text):
        assert claim is not None, text.splitlines()[first - 1]
        # clang reports the pragma's line.
        is_vector = not reported.isdisjoint(range(first - 1, last + 1))
        body = "\n".join(text.splitlines()[first - 1 : last])
        free = claim in BY_MACHINE or (
            compiler == "clang" and (claim is not Claim.VECTOR or CALLS_OF_CLANG.search(body))
        )
        found += [(claim, body)] if is_vector != (claim is Claim.VECTOR) and not free else []
    return found


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the claims about conversions are those of x86")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in STRIDED])
def test_compilers_agree_with_the_claims(name, compiler, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} is installed")
    assert not contradictions(name, compiler, tmp_path)
