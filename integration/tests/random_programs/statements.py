"""Templates of statements. Each writes one (with what is inside of it) and says whether the program runs with it."""

from __future__ import annotations

from .tree import Node


def assign(w):
    """A tensor expression: a new variable, or an old one anew."""
    value = w.expression()
    if value is None:
        return False
    old = w.r.random() < 0.25 and w.tensor()
    name = old if old and old.isidentifier() and old not in "im" else w.name("t")
    return w.line(f"{name} = {value}")


INPLACE = (
    "{a}.add_({v})",
    "{a}.mul_({v})",
    "{a}.sub_({b})",
    "{a}.copy_({b})",
    "{a} += {b}",
    "{a} *= {k}",
    "{a} -= 1",
    "{a}[0] = {k}",
    "{a}[..., 0] = {v}",
    "{a}[-1:] += {b}",
    "{a}[..., ::2] *= 2",
    "{a}[1:] = {b}",
    "{a}[{a} > 0] = 0",
    "{a}[{a} > {v}] += 1",
    "{a}[i % {a}.shape[0]] = {k}",
    "{a}[m[: {a}.shape[0]]] = {v}",
    "{a}[torch.tensor([0, -1])] = {a}[torch.tensor([-1, 0])]",
    "{a}.zero_()",
    "{a}.fill_({v})",
    "{a}.clamp_(-1, 1)",
    "{a}.relu_()",
    "{a}.neg_()",
    "{a}.sigmoid_()",
    "{a}.masked_fill_({a} < 0, {v})",
    "{a}.index_add_(0, i % {a}.shape[0], {a}[i % {a}.shape[0]].clone())",
    "{a}.index_fill_(0, i % {a}.shape[0], {k})",
    "{a}.index_copy_(0, torch.tensor([0]), {a}[-1:] * 2)",
    "{a}.index_put_((i % {a}.shape[0],), {a}[:1].clone(), accumulate=True)",
    "{a}.scatter_(0, {a}.argsort(0, stable=True), {v})",
    "{a}.scatter_add_(0, torch.zeros({a}.shape, dtype=torch.long), {a}.clone())",
    "{a}.view(-1)[{k} - 1] = 2",
    "{a}.transpose(0, -1).add_(1)",
    "{a}.t_()",
    "{a}.unsqueeze_(0)",
    "{a}.squeeze_()",
    "{a}.select(0, 0).mul_(2)",
    "{a}.diagonal().add_({v})",
    "{a}.narrow(0, 0, 1).zero_()",
    "{a}.flatten()[:2].add_(1)",
    "{a}.unbind(0)[0].add_(1)",
    "{a}.chunk(2)[0].mul_(2)",
    "torch.add({a}, {b}, out={a})",
    "torch.mul({a}, 2, out={a})",
    "{a}.addcmul_({b}, {b}, value=0.5)",
    "{a}.cumsum_(0)",
    "{a}.tril_()",
    "{a}.swapaxes_(0, -1)",
    "{a}.resize_as_({a})",
    "{a}.normal_()",
    "{a}.bernoulli_(0.5)",
    "{a}.lerp_({b}, 0.5)",
    "{a}.data.add_(1)",
    "{a}.detach().mul_(2)",
    "{a}.set_({a}.clone())",
    "{a}.expand({k}, *{a}.shape)[0].add_(1)",
    "F.relu({a}, inplace=True)",
    "F.dropout({a}, 0.5, True, inplace=True)",
    "{a}.data = {a} * 2",
    "torch._foreach_add_([{a}, {b}], {v})",
    "torch._foreach_mul_([{a}], {k})",
    "{a}.square_().add_({b})",
    "{a}.requires_grad_(False)",
    "{a}.grad = None",
    "{a}.swapdims(0, -1)[0].fill_({v})",
    "{a}.real.mul_(2)",
    "{a}[1:].add_({a}[:-1].clone())",
    "{a}[1:].copy_({a}[:-1])",
    "{a}.transpose(0, -1).mul_({a}.transpose(0, -1))",
    "{a}.diagonal().copy_({a}[..., 0])",
    "{a}[0] = {a}[-1]",
    "{a}[..., :1].add_({a}[..., -1:])",
    "{a}.unfold(0, 2, 2).mul_(2)",
    "{a}.unfold(0, 2, 1).add_(1)",
    "{a} |= {b} | {b}",
    "{a} &= {a} ^ {b}",
    "{a} ^= {b} & {a}",
    "{a} <<= {k}",
    "{a} %= 3",
    "{a} //= {k}",
    "{a} **= 2",
    "torch.cumsum({a}, 0, out={a})",
    "torch.where({a} > 0, {a}, {b}, out={a})",
    "torch.ops.aten.add.out({a}, {b}, out={a})",
    "{a}.masked_scatter_({a} > 0, {b}.clone())",
    "{a}.scatter_reduce_(0, torch.zeros({a}.shape, dtype=torch.long), {a}.clone(), 'amax')",
    "{a}.random_(0, 5)",
    "{a}.exponential_()",
)


def in_place(w):
    name = w.tensor(w.r.choice(["any", "any", "float", "float", "all"]))
    if name is None:
        return False
    fields = {"a": name, "b": w.partner(name), "v": w.value(), "k": w.r.randrange(1, 4)}
    text = w.r.choice(INPLACE).format(**fields)
    if w.r.random() < 0.15:
        node = w.block("with torch.no_grad():", count=(0, 0))
        node.clauses[0][1].append(Node(text))
        return w.settle(node)
    return w.line(text)


def number(w):
    r = w.r
    value = r.choice(
        [
            f"{w.number()} + {w.number()}",
            f"{w.number()} * 2",
            f"min(max({w.number()}, -20), 20)",
            f"{w.number()} // 2",
            f"int({w.number()})",
            f"float({w.number()}) * 0.5",
            f"max({w.number()}, {w.number()})",
            f"math.floor({w.number()} / 2)",
            f"len(items) + {w.number()}",
            f"x.numel() % 7 + {w.number()}",
            f"sum([{w.number()}, {w.number()}])",
            f"{w.number()} if {condition(w)} else {w.number()}",
            f"abs({w.number()}) ** 2",
            f"divmod({w.number()}, 3)[1]",
            "counted()",
            f"hash(({w.number()}, 1)) % 5",
            f"{w.number()} % 4",
            f"round({w.number()} * 1.5)",
        ]
    )
    if w.breaks and r.random() < 0.15 and (t := w.tensor("number")):
        item = f"{t}.reshape(-1)[:1].sum().item()"
        value = r.choice(
            [
                f"int({t}.sum().item())",
                f"{t}.max().item()",
                f"{t}.any().item()",
                f"{item} ** 2",
                f"-{item} * 0.1 * 10",
            ]
            + [
                f"abs({item}) + 0.1 - {item}",
                f"max({item}, 1)",
                f"{item} % 3",
                f"int({item}) // 2",
                f"{item} > 0",
            ]
        )
    return w.line(f"{w.name('k')} = {value}")


def condition(w):
    r, name = w.r, w.tensor()
    options = [
        f"{w.number()} {r.choice(['<', '>', '==', '!=', '<='])} {w.number()}",
        f"{w.number()} > 1 and {w.number()} < 9",
        "isinstance(box, Small)",
        "'k' in table",
        "items",
        "len(items) > 2",
        "not n",
        "x is y",
        "flag" if "flag" in w.scope.others.get("bool", []) else "n == 2",
        "torch.is_grad_enabled()",
    ]
    if name:
        options += [
            f"{name}.dim() > 1",
            f"{name}.shape[0] > 3" if w.rank(name) else f"{name}.requires_grad",
            f"{name}.requires_grad",
            f"{name}.is_contiguous()",
            f"{name}.dtype == torch.float32",
            f"{name}.is_floating_point()",
            f"{name} is not x",
        ]
    return r.choice(options)


def data_condition(w):
    name = w.tensor("number")
    if name is None or not w.breaks:
        return None
    return w.r.choice(
        [
            f"{name}.sum() > {w.r.randrange(-1, 2)}",
            f"({name} > 0).any()",
            f"{name}.numel() and {name}.max() < 2",
        ]
    )


LISTS = (
    "items.append({a})",
    "items.append({n})",
    "items.insert(0, {a})",
    "items.extend([{a}, {n}])",
    "items.pop()",
    "items[0] = {a}",
    "items[-1] = {n}",
    "items[:] = items[::-1]",
    "items += [{a}]",
    "items.reverse()",
    "table['k'] = {a}",
    "table[n] = {a}",
    "table.update(q={a}, r={n})",
    "table.setdefault('z', {a})",
    "table.setdefault('z', []).append({a})",
    "table.pop('k', None)",
    "table['list'] = [{a}, {n}]",
    "table |= {{'u': {a}}}",
    "box.value = {a}",
    "box.add({a})",
    "box.log.append({n})",
    "box.note = ({n}, {a})",
    "box.keep(a={a}, b={n})",
    "box[0] = {v}",
    "box.value += 1",
    "box.table['k'] = {a}",
    "setattr(box, 'other', {a})",
    "Box.total += 1",
    "STATE['calls'] += 1",
    "STATE['last'] = {a}",
    "STATE['list'].append({n})",
    "box.double",
    "{l} = [{a}, {b}, {n}]",
    "{l} = {{'k': {a}, 1: {n}}}",
    "{l} = Pair({a}, {n})",
    "{l} = Record({a}, {n})",
    "{l} = collections.deque([{a}, {n}], maxlen=3)",
    "{l} = collections.defaultdict(list, p=[{a}])",
    "{l} = dict(table)",
    "{l} = list(items)",
    "{l} = [{a} * j for j in range({k})]",
    "{l} = {{j: {a} + j for j in range({k})}}",
    "{l} = [q for q in items if isinstance(q, int)]",
    "{l} = sorted([{n}, {n}, 1], key=lambda q: -q)",
    "{l} = list(zip([{a}, {b}], range(2)))",
    "{l} = tuple(map(lambda q: q * 2, ({a}, {n})))",
    "{l} = [*enumerate([{a}, {b}])]",
    "{l} = list(filter(None, [0, {n}, 3]))",
    "{l} = (f'{{n}} {{len(items)}}', {a}.shape)",
    "{l} = tuple({a}.shape)",
    "{l} = {a}.split(1)",
    "{l} = {a}.unbind()",
    "{l} = torch.broadcast_tensors({a}, {b})",
    "{l} = Small({a})",
    "{l} = lambda q: q + {a}",
    "{l} = iter([{a}, {n}])",
    "{l} = {a}.stride()",
    "{l} = str({a}.dtype)",
    "{l} = [None] * {k}",
    "{l} = {{{n}, 3, 5}}",
    "{l} = torch.Size([{k}, 2])",
    "{l} = torch.finfo({a}.dtype).eps",
    "{l} = random.random()",
    "{l} = random.randint(0, {k})",
    "{l} = slice(0, {k})",
    "{l} = torch.promote_types({a}.dtype, {b}.dtype)",
)
EFFECTS = (
    "OUT.write('w')",
    "print('n', n)",
    "print(f'{{n}}:{k}')",
    "STATE['list'].append(str(n))",
    "print({a}.shape)",
    "STATE['list'].append(tuple({a}.shape))",
)
OF_MODULE = (
    "self.buf.add_(1)",
    "self.buf.mul_({v})",
    "self.buf = self.buf * 0.5 + 1",
    "self.count += 1",
    "self.scale = self.scale * 0.5 + {n}",
    "self.cache['k'] = {a}",
    "self.cache[self.count] = n",
    "self.seen.append({n})",
    "self.last = {a}",
    "self.training and self.seen.append('t')",
    "{t} = self.lin({a})",
    "{t} = self.lin({a})",
    "{t} = self.layer({a})",
    "{t} = self.bn({a})",
    "{t} = self.seq({a})",
    "{t} = self.emb(i)",
    "{t} = self.emb(i % 5).sum(0)",
    "{t} = self.drop({a})",
    "{t} = self.step({a}, by=n)",
    "{t} = {a} * self.buf",
    "{t} = {a} + self.count",
    "{t} = sum(p.sum() for p in self.parameters())",
    "{t} = F.linear({a}, self.lin.weight * 0.5)",
    "{t} = self.lin.weight.t()",
    "{t} = [*self.children()][0]({a})",
    "{t} = torch.cat([q.flatten() for q in self.layer.parameters()])",
    "self.buf[0] = {k}",
    "self.buf.data = self.buf.clone()",
    "{t} = getattr(self, 'scale') * {a}",
    "{t} = self._modules['seq'][0]({a}).relu()",
    "{t} = F.dropout({a}, 0.5, self.training)",
)


def filled(w, options):
    a = w.tensor()
    if a is None:
        return False
    fields = {"a": a, "b": w.partner(a), "n": w.number(), "v": w.value(), "k": w.r.randrange(1, 4)}
    return w.line(w.r.choice(options).format(**fields, l=w.name("l"), t=w.name("t")))


def containers(w):
    return filled(w, LISTS)


def effects(w):
    return filled(w, EFFECTS)


def of_module(w):
    return w.program.inputs.is_module and filled(w, OF_MODULE)


def unpack(w):
    a = w.tensor("any", 1)
    if a is None:
        return False
    p, q, rest = w.name("t"), w.name("t"), w.name("l")
    return w.line(
        w.r.choice(
            [
                f"{p}, {q} = {a}.chunk(2, -1)",
                f"{p}, *{rest} = {a}.unbind(0)",
                f"{p}, ({q}, *_) = {a} * 2, ({a}, 3)",
                f"{p}, {q} = {a}.split([1, {a}.shape[0] - 1])",
                f"{p}, {q} = {a}.max(-1)",
                f"{p}, {q} = torch.var_mean({a}, -1)",
                f"{p}, {q} = {a}.sort(-1, stable=True)",
                f"{p}, {q} = Halves.apply({a})",
                f"{p}, {q} = Marked.apply({a})",
                f"{p}, {q} = torch.broadcast_tensors({a}, {w.partner(a)})",
                f"{p}, {q} = ({a}, {a}.t())",
                f"{p} = {q} = {a} + 1",
                f"{p} = ({q} := {a} * 2) + 1",
                f"{p}, {q} = torch.frexp({a})",
                f"{p}, {q} = {a}.cummax(-1)",
                f"{p}, {q} = {a}.unique(return_inverse=True)",
                f"{p}, {q} = torch.linalg.qr({a} * 1.0)" if w.rank(a) == 0 else f"{p}, {q} = {a}.min(0)",
            ]
        )
    )


def views(w):
    """A view, and perhaps a change through it or of its base."""
    a = w.tensor("all")
    if a is None:
        return False
    v = w.name("t")
    view = w.r.choice(
        [
            "{a}.view(-1)",
            "{a}[0]",
            "{a}[..., 1:]",
            "{a}.t()",
            "{a}.unsqueeze(0)",
            "{a}.view_as({a})",
            "{a}.detach()",
        ]
        + ["{a}.transpose(0, -1)", "{a}[::2]", "{a}.diagonal()", "{a}.expand(2, *{a}.shape)", "{a}.flatten()"]
        + [
            "{a}.as_strided((2,), (1,), 0)",
            "{a}.narrow(-1, 0, 1)",
            "{a}.real",
            "torch.view_as_real({a})",
            "{a}.T",
        ]
        + ["{a}.unfold(0, 2, 2)", "{a}.permute(*range({a}.dim())[::-1])", "{a}.squeeze()", "{a}.chunk(2)[-1]"]
        + ["{a}.movedim(0, -1)[0]", "{a}.data", "{a}.reshape({a}.shape)", "{a}.select(-1, 0)", "{a}[:, None]"]
    ).format(a=a)
    if not w.line(f"{v} = {view}"):
        return False
    if w.r.random() < 0.5:
        change = w.r.choice(
            ["{v}.add_(1)", "{v}.mul_(0.5)", "{a}.add_(1)", "{v}.zero_()", "{v}[0] = 1", "{a} *= 2"]
        )
        w.line(change.format(a=a, v=v))
    return True


def gradients(w):
    a = w.tensor("float")
    if a is None:
        return False
    t = w.name("t")
    return w.line(
        w.r.choice(
            [
                f"{t} = torch.autograd.grad(({a} * {a}).sum(), {a}, retain_graph=True)[0]",
                f"{a}.register_hook(lambda g: g * 2)",
                f"{t} = {a}.detach().requires_grad_()",
                f"{t} = ({a} * 2).requires_grad_()",
                f"{t} = {a}.detach().clone().requires_grad_().sin()",
                f"({a}.sin() * 2).sum().backward(retain_graph=True)",
                f"{t} = {a}.grad if {a}.grad is not None else {a}",
                f"{t} = {a}.requires_grad and {a}.grad_fn is None",
                f"{t} = torch.autograd.grad({a}.exp().mean(), [x], allow_unused=True)[0]",
                f"{t} = ({a} + 0).requires_grad",
            ]
        )
    )


def if_(w):
    test = (w.r.random() < 0.25 and data_condition(w)) or condition(w)
    headers = [f"if {test}:"]
    if w.r.random() < 0.2:
        headers.append(f"elif {condition(w)}:")
    if w.r.random() < 0.5:
        headers.append("else:")
    return w.settle(w.block(*headers))


def for_(w):
    r, a = w.r, w.tensor("number", 1)
    j = w.name("j")
    over = r.choice(
        [f"{j} in range({r.randrange(1, 4)})", f"{j} in reversed([1, n])", f"{j} in list(items)[:2]"]
        + [f"{j}, q{j} in enumerate(({a}, {a}))", f"{j}, q{j} in table.items()", f"{j} in range(len(items))"]
        + (
            [f"{j} in {a}", f"{j} in gen(2, {a})", f"{j} in {a}.split(1)", f"{j}, q{j} in zip({a}, {a})"]
            if a
            else []
        )
        + ([f"{j} in {a}.shape", f"{j} in range({a}.shape[0])", f"{j} in pieces({a})"] if a else [])
    )
    w.loops += 1
    node = w.block(*([f"for {over}:"] if r.random() < 0.85 else [f"for {over}:", "else:"]))
    if r.random() < 0.25:
        test = data_condition(w) if r.random() < 0.3 else None
        end = r.choice(["break", "continue"])
        place = 0 if r.random() < 0.5 else len(node.clauses[0][1])
        node.clauses[0][1].insert(place, Node(clauses=[(f"if {test or condition(w)}:", [Node(end)])]))
    w.loops -= 1
    return w.settle(node)


def while_(w):
    name = w.name("w")
    if not w.line(f"{name} = {w.r.choice(['2', '3', 'n'])}"):
        return False
    node = w.block(f"while {name} > 0:", first=f"{name} -= 1")
    return w.settle(node)


RAISING = (
    "raise ValueError('v')",
    "raise Oops(3, extra=[1])",
    "[][1]",
    "{}['k']",
    "int('x')",
    "raise KeyError(n)",
    "torch.ones(2) + torch.ones(5)",
    "x.view(-1, 7919)",
    "x + 'a'",
    "x.nothing",
    "torch.cat([x, x[None]])",
    "x[..., 9999]",
    "assert n > 1, 'few'",
    "torch.ones(3)[torch.tensor([7])]",
    "x @ torch.ones(977, 2)",
)


def try_(w):
    r, e = w.r, w.name("e")
    kinds = r.choice(["(ValueError, KeyError)", "Exception", "(IndexError, Oops, TypeError)", "RuntimeError"])
    headers = ["try:", f"except {kinds} as {e}:"]
    headers += ["else:"] if r.random() < 0.2 else []
    headers += ["finally:"] if r.random() < 0.3 else []
    node = w.block(*headers, count=(1, 2))
    if r.random() < 0.6:
        body = node.clauses[0][1]
        wrong = r.choice(RAISING)
        body.insert(r.randint(0, len(body)), Node(wrong))
    node.clauses[1][1].append(Node(f"STATE['list'].append((type({e}).__name__, str({e})))"))
    return w.settle(node)


def with_(w):
    r = w.r
    context = r.choice(
        ["torch.no_grad()"] * 3
        + [
            "torch.enable_grad()",
            "Context(STATE['list'])",
            "Context(box.log, True)",
            "noting(box.log, 'c') as depth",
        ]
        + [
            "contextlib.suppress(ValueError, KeyError)",
            "torch.set_grad_enabled(n > 1)",
            "contextlib.nullcontext()",
        ]
        + [
            "torch.autocast('cpu', torch.bfloat16)",
            "torch.autocast('cpu', torch.float16)",
            "torch.autocast('cpu', enabled=n > 1), torch.autocast('cpu', torch.bfloat16, enabled=False)",
            "torch.random.fork_rng()",
            "Context(box.log), torch.no_grad()",
        ]
    )
    node = w.block(f"with {context}:")
    if "Context(box.log, True)" in context or "suppress" in context:
        if r.random() < 0.5:
            node.clauses[0][1].append(Node(r.choice(RAISING[:3])))
    return w.settle(node)


def function(w):
    """A function of the program's own, called once or twice."""
    r, name, a = w.r, w.name("fn"), w.tensor("number")
    if a is None:
        return False
    kept, result = w.name("k"), w.name("t")
    if not w.line(f"{kept} = {w.number()}"):
        return False
    header = r.choice([f"def {name}(v, k=2):", f"def {name}(v, *rest, k=1):", f"def {name}(v, k=n, **more):"])
    body = [Node(f"nonlocal {kept}") if not w.depth and r.random() < 0 else Node(f"v = v * 2 + {kept}")]
    body.append(
        Node(
            r.choice(
                ["v = v + k", "items.append(k)", "box.log.append(k)", "v = v.relu() if k else v", "pass"]
            )
        )
    )
    end = r.choice(["return v", "return (v, k)[0]", "return v + s", "yield v"])
    body.append(Node(end))
    node = Node(clauses=[(header, body)])
    call = f"{name}({a})" if end != "yield v" else f"next({name}({a}))"
    again = r.choice(["", f" + {call}", f" * {name}(v={a}, k=1)" if end != "yield v" else ""])
    w.body.append(node)
    if w.line(f"{result} = {call}{again}"):
        return True
    w.body.remove(node)
    return False


def counter(w):
    """A closure that changes a variable of its function."""
    name, kept, a = w.name("fn"), w.name("c"), w.tensor("number")
    if a is None:
        return False
    made = f"def {name}():\n    {kept} = 0\n    def inner(v):\n        nonlocal {kept}\n        {kept} += 1\n        return v * {kept} + n\n    return inner"  # noqa: E501 - text of a program
    node = Node(made)
    w.body.append(node)
    if w.line(f"{w.name('t')} = (lambda g: g({a}) + g({a}))({name}())"):
        return True
    w.body.remove(node)
    return False


def local_class(w):
    name, a = w.name("C"), w.tensor("number")
    if a is None:
        return False
    node = Node(
        f"class {name}(Box):\n    total = {w.r.randrange(5)}\n    def __call__(self, t, scale=1):\n        return super().__call__(t, scale=2) + self.total"  # noqa: E501 - text of a program
    )
    w.body.append(node)
    if w.line(f"{w.name('t')} = {name}({a})({w.partner(a)})"):
        return True
    w.body.remove(node)
    return False


def early(w):
    """A return, or an exception that leaves the function, in some calls."""
    a = w.tensor()
    if a is None or w.depth:
        return False
    end = w.r.choice([f"return ({a}, n)", f"return {a}", "raise Oops(n)", f"return [{a}, x, box]"])
    test = (w.r.random() < 0.4 and data_condition(w)) or w.r.choice(
        ["n > 2", "s < 0", "x.shape[0] < 2", "len(items) > 4"]
    )
    return w.settle_if(Node(clauses=[(f"if {test}:", [Node(end)])]))


STATEMENTS = (
    (assign, 34, 9),
    (in_place, 12, 9),
    (views, 6, 9),
    (containers, 10, 9),
    (number, 6, 9),
    (effects, 2, 9),
    (of_module, 7, 9),
    (unpack, 4, 9),
    (gradients, 2, 9),
    (if_, 5, 2),
    (for_, 4, 1),
    (while_, 1.5, 1),
    (try_, 3, 1),
    (with_, 4, 2),
    (function, 3, 1),
    (counter, 1, 1),
    (local_class, 0.7, 0),
    (early, 1, 0),
)
"""What writes a statement, how often it is drawn, and how deep inside of others it may be."""


def finish(w):
    """The statement that returns some of the variables."""
    r = w.r
    names = [n for n in w.scope.tensors if n.isidentifier()]
    recent = names[-8:]
    r.shuffle(recent)
    chosen = recent[: r.randint(2, 7)]
    if r.random() < 0.3:
        chosen += [r.choice(names)]
    others = [
        n
        for kind in ("int", "float", "list", "dict", "tuple", "bool", "Pair", "Record", "str")
        for n in w.scope.others.get(kind, [])
    ]
    r.shuffle(others)
    chosen += [n for n in others if n.isidentifier()][: r.randint(0, 2)]
    shape = r.choice(
        ["({},)", "[{}]", "tuple([{}])", "{{'out': ({},), 'n': n}}", "(lambda *q: q)({})", "({}, len(items))"]
    )
    if len(chosen) == 1 and r.random() < 0.4:
        shape = "{}"
    w.body.append(Node("return " + shape.format(", ".join(chosen))))
