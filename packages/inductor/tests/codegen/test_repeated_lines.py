"""Repeated statements of a host program become loops; written out again, the loops are the statements."""

import re

import pytest

from fxstack_inductor.codegen import repeated_lines
from fxstack_inductor.codegen.repeated_lines import INDEX, with_loops

COUNT = 32


def unrolled(lines):
    """Return the statements that loops run, in order, with one name for all variables of a repetition."""
    written, tables, loop = [], {}, None
    for line in lines:
        table = re.fullmatch(r"static [\w *]+ (fx_column_\d+)\[\] = \{(.*)\};", line)
        head = re.fullmatch(rf"for \(int64_t {INDEX} = 0; .* < (\d+); .*\{{", line)
        if table is not None:
            tables[table[1]] = table[2].split(", ")
        elif head is not None:
            loop = int(head[1]), []
        elif line == "} }" and loop is not None:
            written += [repetition(text, tables, k) for k in range(loop[0]) for text in loop[1]]
            loop = None
        elif loop is not None:
            loop[1].append(line)
        elif line != "{":
            written.append(line)
    return list(map(renamed, written))


def repetition(text, tables, k):
    text = re.sub(rf"(fx_column_\d+)\[{INDEX}\]", lambda found: tables[found[1]][k], text)
    add = rf"\((\d+) \+ (-?\d+) \* {INDEX}\)"
    return re.sub(add, lambda found: str(int(found[1]) + int(found[2]) * k), text)


def renamed(text):
    return re.sub(r"\bn\d+_\w+", "n", text)


def loops(lines):
    return sum(line.startswith(f"for (int64_t {INDEX}") for line in lines)


def part(k, number="0x1.8p+3"):
    return [
        f"fx_number n{k}_a = fx_read(o[{3 * k + 5}]);",
        f'{{ void* entry = profiled ? fx_begin("sum_{k}") : 0;',
        f"kernel_1(&n{k}_a.value, x[{k * k}], {number}, 1.5e-05);",
        "if (entry) fx.aoti_record_function_end(entry); }",
        f"fx_clear(o, fx_table_{k}, 1);",
    ]


def parts(*odd, **options):
    return [line for k in range(COUNT) for line in part(k, **(options if k in odd else {}))]


BEFORE = ["fx_number n900_rate = fx_read(o[0]);"]
AFTER = ["fx_put(result, 0, 0);"]
READS_BEFORE = [f"fx_add(n900_rate, o[{k}]);" for k in range(80)]
CHAIN = [f"fx_number n{k + 1}_x = fx_add(n{k}_x, o[{k}]);" for k in range(80)]
ARRAYS = [line for k in range(80) for line in (f"void* w{k}[{k + 1}];", f"fx_use(w{k});")]
CASES = {
    "parts": (parts(), 1),
    "lines around": (BEFORE + parts() + AFTER, 1),
    "another constant at first": (parts(0, number="0x1.9p+3"), 1),
    "another constant in the middle": (parts(15, number="0x1.9p+3"), 2),
    "a decimal that differs": ([f"fx_use(1e-{k:02});" for k in range(80)], 0),
    "a variable from before": (BEFORE + READS_BEFORE, 1),
    "a variable of the repetition before": (CHAIN, 0),
    "the last variable is used afterwards": (parts() + [f"fx_use(n{COUNT - 1}_a);"], 1),
    "all variables are used afterwards": (parts() + [f"fx_use(n{k}_a);" for k in range(COUNT)], 0),
    "arrays of different sizes": (ARRAYS, 0),
    "few": (parts()[:60], 0),
    "blocks that stay open": (["if (a) {"] * 80 + ["}"] * 80, 0),
    "two loops": (parts() + READS_BEFORE, 2),
    "numbers beyond 64 bits": ([f"fx_use({10**19 + k});" for k in range(80)], 0),
    "inner loops": ([f"for (int64_t k = 0; k < {k}; k++) {{ }}" for k in range(80)], 0),
}


@pytest.mark.parametrize("name", CASES)
def test_loops_run_the_statements(name):
    lines, wanted = CASES[name]
    found = with_loops(lines)
    assert loops(found) == wanted
    assert unrolled(found) == list(map(renamed, lines))


def test_variables_of_a_loop_stay_apart():
    found = with_loops(parts())
    assert sum("fx_number" in line for line in found) == 1
    assert sum("&n0_a.value" in line for line in found) == 1


def test_lines_that_cannot_share_a_loop_take_linear_time(monkeypatch):
    """Twice the lines are looked at twice as often, if each is used at the end."""
    seen = []
    inspect = repeated_lines._Roller._scope
    monkeypatch.setattr(
        repeated_lines._Roller,
        "_scope",
        lambda self, start, period: seen.append(period) or inspect(self, start, period),
    )

    def looked_at(count):
        seen.clear()
        with_loops(
            [f"void* v{k} = f({k});" for k in range(count)] + [f"g(v{k});" for k in reversed(range(count))]
        )
        return sum(seen)

    small, large = looked_at(400), looked_at(800)
    assert 0 < large < 2.5 * small
