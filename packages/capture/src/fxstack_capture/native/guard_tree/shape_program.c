/* Shape expressions, evaluated as a postfix program over 64-bit integers and doubles.
 *
 * The guard fails after an overflow, after a division by zero, and if the value of a symbol is not a number,
 * because it is then unknown whether the expression holds. Arithmetic follows Python: floor division and modulo
 * round down, and comparisons between int and float are exact. */
#include "guard_tree.h"
#include <math.h>
#include <string.h>

typedef struct {
    int is_float;
    int64_t i;
    double d;
} Number;

typedef enum {
    OP_LOAD, OP_INT, OP_FLOAT, OP_ADD, OP_MUL, OP_NEG, OP_FLOORDIV, OP_MOD, OP_CEILDIV, OP_TRUEDIV, OP_CLEANDIV, OP_POW,
    OP_MAX, OP_MIN, OP_EQ, OP_NE, OP_LT, OP_LE, OP_AND, OP_OR, OP_NOT, OP_TOFLOAT, OP_TRUNC, OP_FLOOR, OP_CEIL, OP_ABS,
    OP_SQRT, OP_ROUND, OP_WHERE, OP_LSHIFT, OP_RSHIFT, OP_BITAND, OP_BITOR, OP_CMOD, OP_LOG2, OP_COUNT
} Operation;

static const struct {
    const char *name;
    int pops;
} operations[OP_COUNT] = {
    [OP_LOAD] = {"load", 0},         [OP_INT] = {"int", 0},     [OP_FLOAT] = {"float", 0},     [OP_ADD] = {"add", 2},
    [OP_MUL] = {"mul", 2},           [OP_NEG] = {"neg", 1},     [OP_FLOORDIV] = {"floordiv", 2}, [OP_MOD] = {"mod", 2},
    [OP_CEILDIV] = {"ceildiv", 2},   [OP_TRUEDIV] = {"truediv", 2}, [OP_CLEANDIV] = {"cleandiv", 2}, [OP_POW] = {"pow", 2},
    [OP_MAX] = {"max", 2},           [OP_MIN] = {"min", 2},     [OP_EQ] = {"eq", 2},           [OP_NE] = {"ne", 2},
    [OP_LT] = {"lt", 2},             [OP_LE] = {"le", 2},       [OP_AND] = {"and", 2},         [OP_OR] = {"or", 2},
    [OP_NOT] = {"not", 1},           [OP_TOFLOAT] = {"tofloat", 1}, [OP_TRUNC] = {"trunc", 1}, [OP_FLOOR] = {"floor", 1},
    [OP_CEIL] = {"ceil", 1},         [OP_ABS] = {"abs", 1},     [OP_SQRT] = {"sqrt", 1},       [OP_ROUND] = {"round", 1},
    [OP_WHERE] = {"where", 3},       [OP_LSHIFT] = {"lshift", 2}, [OP_RSHIFT] = {"rshift", 2}, [OP_BITAND] = {"bitand", 2},
    [OP_BITOR] = {"bitor", 2},       [OP_CMOD] = {"cmod", 2},   [OP_LOG2] = {"log2", 1},
};

typedef struct {
    Operation operation;
    Number operand;
} Instruction;

typedef struct {
    int length, depth;
    Instruction code[];
} ShapeProgram;

/* --- arithmetic ---------------------------------------------------------------------------------- */

static inline Number from_int(int64_t i) { return (Number){0, i, 0}; }
static inline Number from_double(double d) { return (Number){1, 0, d}; }
static inline double as_double(Number n) { return n.is_float ? n.d : (double)n.i; }

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

static int int_power(int64_t base, int64_t exponent, int64_t *out) {
    int64_t result = 1;
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(result, base, &result)) return 0;
        else if (base == 0 || base == 1) break;
    *out = result;
    return 1;
}

static int int_operation(Operation operation, int64_t a, int64_t b, Number *out) {
    int64_t r = 0;
    switch (operation) {
    case OP_ADD: if (__builtin_add_overflow(a, b, &r)) return 0; break;
    case OP_MUL: if (__builtin_mul_overflow(a, b, &r)) return 0; break;
    case OP_TRUEDIV:
        if (b == 0 || llabs(a) > (1LL << 53) || llabs(b) > (1LL << 53)) return 0;
        *out = from_double((double)a / (double)b);
        return 1;
    case OP_CLEANDIV:
        if (b == 0 || (a == INT64_MIN && b == -1) || a % b != 0) return 0;
        r = a / b;
        break;
    case OP_FLOORDIV: case OP_MOD: case OP_CEILDIV: case OP_CMOD:
        if (b == 0 || (a == INT64_MIN && b == -1)) return 0;
        if (operation == OP_FLOORDIV) r = floor_div(a, b);
        else if (operation == OP_MOD) r = a - floor_div(a, b) * b;
        else if (operation == OP_CMOD) r = a % b;
        else r = floor_div(a, b) + (a % b != 0);
        break;
    case OP_POW:
        if (b < 0) { if (a == 0) return 0; *out = from_double(pow((double)a, (double)b)); return 1; }
        if (!int_power(a, b, &r)) return 0;
        break;
    case OP_MAX: r = a > b ? a : b; break;
    case OP_MIN: r = a < b ? a : b; break;
    case OP_LSHIFT: if (b < 0 || b > 62 || __builtin_mul_overflow(a, (int64_t)1 << b, &r)) return 0; break;
    case OP_RSHIFT: if (b < 0) return 0; r = a >> (b > 63 ? 63 : b); break;
    case OP_BITAND: case OP_AND: r = a & b; break;
    case OP_BITOR: case OP_OR: r = a | b; break;
    default: return 0;
    }
    *out = from_int(r);
    return 1;
}

static int double_operation(Operation operation, double a, double b, Number *out) {
    double r;
    switch (operation) {
    case OP_ADD: r = a + b; break;
    case OP_MUL: r = a * b; break;
    case OP_TRUEDIV: if (b == 0) return 0; r = a / b; break;
    case OP_FLOORDIV: if (b == 0) return 0; r = floor(a / b); break;
    case OP_MOD: if (b == 0) return 0; r = fmod(a, b); if (r != 0 && (r < 0) != (b < 0)) r += b; break;
    case OP_POW: r = pow(a, b); break;
    case OP_MAX: r = a > b ? a : b; break;
    case OP_MIN: r = a < b ? a : b; break;
    default: return 0;
    }
    *out = from_double(r);
    return r == r;
}

/* Returns -1, 0 or 1. 2: not comparable (NaN). The comparison between int and double is exact. */
static int compare(Number a, Number b) {
    if (!a.is_float && !b.is_float) return a.i < b.i ? -1 : a.i > b.i;
    double x = as_double(a), y = as_double(b);
    if (x != x || y != y) return 2;
    if (x != y || (a.is_float && b.is_float)) return x < y ? -1 : x > y;
    /* Both round to the same double, so both are integers. Compare them as integers. */
    if (fabs(x) >= 9223372036854775808.0) return a.is_float ? (x > 0 ? 1 : b.i == INT64_MIN ? 0 : -1) : (y > 0 ? -1 : 0);
    int64_t i = a.is_float ? (int64_t)a.d : a.i, j = b.is_float ? (int64_t)b.d : b.i;
    return i < j ? -1 : i > j;
}

static int rounded(Operation operation, Number a, Number *out) {
    if (!a.is_float) return *out = a, 1;
    double r = operation == OP_TRUNC ? trunc(a.d) : operation == OP_FLOOR ? floor(a.d) : operation == OP_CEIL ? ceil(a.d) : nearbyint(a.d);
    if (!(fabs(r) < 9.2e18)) return 0;
    *out = from_int((int64_t)r);
    return 1;
}

static int unary(Operation operation, Number a, Number *out) {
    switch (operation) {
    case OP_NOT: *out = from_int(!a.i); return 1;
    case OP_NEG: if (!a.is_float && a.i == INT64_MIN) return 0; *out = a.is_float ? from_double(-a.d) : from_int(-a.i); return 1;
    case OP_ABS: if (!a.is_float && a.i == INT64_MIN) return 0; *out = a.is_float ? from_double(fabs(a.d)) : from_int(llabs(a.i)); return 1;
    case OP_TOFLOAT: *out = from_double(as_double(a)); return 1;
    case OP_SQRT: if (as_double(a) < 0) return 0; *out = from_double(sqrt(as_double(a))); return 1;
    case OP_LOG2: if (as_double(a) <= 0) return 0; *out = from_double(log2(as_double(a))); return 1;
    default: return rounded(operation, a, out);
    }
}

static int binary(Operation operation, Number a, Number b, Number *out) {
    if (operation >= OP_EQ && operation <= OP_LE) {
        int c = compare(a, b);
        *out = from_int(operation == OP_EQ ? c == 0 : operation == OP_NE ? c != 0 : operation == OP_LT ? c == -1 : c == -1 || c == 0);
        return 1;
    }
    if (a.is_float || b.is_float) return double_operation(operation, as_double(a), as_double(b), out);
    return int_operation(operation, a.i, b.i, out);
}

/* --- running ------------------------------------------------------------------------------------- */

static int load(const Value *v, Number *out) {
    if (v->object == NULL) return *out = from_int(v->number), 1;
    if (PyFloat_CheckExact(v->object)) return *out = from_double(PyFloat_AS_DOUBLE(v->object)), 1;
    if (!PyLong_Check(v->object)) return 0;
    int overflow;
    *out = from_int(PyLong_AsLongLongAndOverflow(v->object, &overflow));
    return !overflow;
}

static int relate_shape(Test *t, const Value *registers) {
    const ShapeProgram *p = t->program;
    Number stack[p->depth + 1], *top = stack;
    for (int i = 0; i < p->length; i++) {
        const Instruction *in = &p->code[i];
        switch (in->operation) {
        case OP_LOAD: if (!load(&registers[in->operand.i], top++)) return 0; break;
        case OP_INT: case OP_FLOAT: *top++ = in->operand; break;
        case OP_WHERE: top -= 2; top[-1] = top[-1].i ? top[0] : top[1]; break;
        default:
            if (operations[in->operation].pops == 1) {
                if (!unary(in->operation, top[-1], &top[-1])) return 0;
            } else {
                top--;
                if (!binary(in->operation, top[-1], top[0], &top[-1])) return 0;
            }
        }
    }
    return top[-1].i != 0;
}

/* --- building ------------------------------------------------------------------------------------ */

static int parse_instruction(PyObject *item, int registers, Instruction *in) {
    const char *name;
    PyObject *operand;
    if (!PyArg_ParseTuple(item, "sO", &name, &operand)) return -1;
    for (int op = 0; op < OP_COUNT; op++) {
        if (strcmp(name, operations[op].name) != 0) continue;
        in->operation = op;
        if (op == OP_FLOAT) in->operand = from_double(PyFloat_AsDouble(operand));
        else in->operand = from_int(PyLong_AsLongLong(operand));
        if (op == OP_LOAD && (in->operand.i < 0 || in->operand.i >= registers) && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no such register");
        return PyErr_Occurred() ? -1 : 0;
    }
    return PyErr_Format(PyExc_ValueError, "unknown shape operation %s", name), -1;
}

int shape_build(Tree *tree, Test *test, PyObject *arguments) {
    PyObject *code;
    if (!PyArg_ParseTuple(arguments, "O!", &PyTuple_Type, &code)) return -1;
    Py_ssize_t n = PyTuple_GET_SIZE(code);
    ShapeProgram *p = PyMem_Calloc(1, sizeof *p + n * sizeof p->code[0]);
    if (p == NULL) return PyErr_NoMemory(), -1;
    test->program = p;
    test->relation = relate_shape;
    p->length = (int)n;
    int height = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (parse_instruction(PyTuple_GET_ITEM(code, i), tree->register_count, &p->code[i]) < 0) return -1;
        height -= operations[p->code[i].operation].pops;
        if (height < 0) break;
        if (++height > p->depth) p->depth = height;
    }
    if (height != 1) return PyErr_SetString(PyExc_ValueError, "a shape program must leave one value"), -1;
    return 0;
}
