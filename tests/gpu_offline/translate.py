"""Translate the PTX of a kernel to the C that emulator.c includes.

PTX is what NVVM made of a kernel after all optimisation, so that also code for GPUs alone is run,
which numba's CUDA simulator never sees. Each register is a uint64_t; each instruction reads its
operands as its type (``as_f32``) and writes its result so (``put_f32``).

Notes
-----
NVIDIA, "Parallel Thread Execution ISA", version 8.8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


def _table(text: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in text.strip().splitlines())


_COMPARED = _table("""
eq   {0} == {1}
ne   {0} < {1} || {0} > {1}
lt   {0} < {1}
le   {0} <= {1}
gt   {0} > {1}
ge   {0} >= {1}
equ  !({0} < {1} || {0} > {1})
neu  {0} != {1}
ltu  !({0} >= {1})
leu  !({0} > {1})
gtu  !({0} <= {1})
geu  !({0} < {1})
num  {0} == {0} && {1} == {1}
nan  {0} != {0} || {1} != {1}
""")
"""Comparisons of setp; those that end with u hold for a NaN."""

_INTEGERS = _table("""
add       {0} + {1}
sub       {0} - {1}
neg       -{0}
abs       {0} < 0 ? -{0} : {0}
min       {0} < {1} ? {0} : {1}
max       {0} > {1} ? {0} : {1}
mul.lo    {0} * {1}
mul.hi    (({W}){0} * {1}) >> {bits}
mul.wide  ({W}){0} * {1}
mad.lo    {0} * {1} + {2}
mad.wide  ({W}){0} * {1} + as_{W}({r2})
div       DIVIDE({T}, {0}, /, {1}, {line})
rem       DIVIDE({T}, {0}, %, {1}, {line})
and       {0} & {1}
or        {0} | {1}
xor       {0} ^ {1}
not       ~{0}
shl       as_u32({r1}) < {bits} ? {0} << as_u32({r1}) : 0
shr       {0} >> (as_u32({r1}) < {bits} ? as_u32({r1}) : {bits} - 1)
shr.u     as_u32({r1}) < {bits} ? {0} >> as_u32({r1}) : 0
clz       {0} ? __builtin_clz{L}({0}) : {bits}
prmt      prmt({0}, {1}, {2})
bfi       bfi({0}, {1}, as_u32({r2}), as_u32({r3}))
mov       {0}
selp      as_pred({r2}) ? {0} : {1}
""")
"""Results of instructions: {0} is an operand as the type of the instruction, {r0} its bits."""

_FLOATS = _table("""
add   {0} + {1}
sub   {0} - {1}
mul   {0} * {1}
div   {0} / {1}
rcp   1 / {0}
neg   -{0}
abs   fabs{F}({0})
sqrt  sqrt{F}({0})
min   fmin{F}({0}, {1})
max   fmax{F}({0}, {1})
fma   fma{F}({0}, {1}, {2})
mov   {0}
selp  as_pred({r2}) ? {0} : {1}
testp.infinite  isinf({0})
""")
_PREDICATES = {"not": "!{0}", **{key: _INTEGERS[key] for key in ("and", "or", "xor", "mov")}}
_RESULTS = {"clz": "u32", "testp.infinite": "pred"}
"""Types of results that are not of the type of the instruction."""
_ROUNDED = {"rmi": "floor", "rpi": "ceil", "rzi": "trunc", "rni": "rint"}


@dataclass
class _Code:
    """C in the making; `block` is what runs up to the next label or branch, and its steps."""

    names: dict[str, str]
    """Expressions of parameters, constants and shared arrays."""
    lines: list[str] = field(default_factory=list)
    block: list[str] = field(default_factory=list)
    steps: int = 0

    def end_block(self) -> None:
        if self.steps:
            self.lines.append(f"counts[STEPS] += {self.steps};")
        self.lines += self.block
        self.block, self.steps = [], 0

    def raw(self, token: str) -> str:
        """Return the expression of an operand's bits."""
        if special := re.fullmatch(r"%(tid|ctaid|ntid|nctaid)\.([xyz])", token):
            return f"place->{special[1]}[{'xyz'.index(special[2])}]"
        if token.startswith("%"):
            return token.replace("%", "_")
        if re.match(r"0[fd]", token):
            return f"0x{token[2:]}ull"
        if token in self.names:
            return self.names[token]
        return f"{int(token.rstrip('U'), 0) % 2**64:#x}ull"

    def address(self, token: str) -> str:
        base, _, offset = token.strip("[]").partition("+")
        return f"{self.raw(base)} + {int(offset or 0)}"


def translate(ptx: str) -> str:
    """Return the C of the one kernel in a PTX file."""
    head, _, rest = ptx.partition(".entry")
    parameters, _, body = rest.partition("\n{\n")
    first_line = (head + parameters).count("\n") + 3
    code = _Code({})
    for number, name in enumerate(re.findall(r"\.param \.\w+ (\w+)", parameters)):
        code.names[name] = f"args[{number}]"
    shared_bytes = 0
    shared = re.findall(r"\.shared \.align (\d+) \.[bfsu](\d+) ([\w$]+)(?:\[(\d+)\])?;", ptx)
    for align, bits, name, count in shared:
        shared_bytes += -shared_bytes % int(align)
        code.names[name] = f"((uint64_t)shared_memory + {shared_bytes})"
        shared_bytes += int(bits) // 8 * int(count or 1)
    arrays = _constants(ptx, code)
    lines = body.splitlines()
    for number, line in enumerate(lines, first_line):
        _translate_line(code, line.partition("//")[0].strip(), number)
    code.end_block()
    return "\n".join(
        [
            f"enum {{ SHARED_BYTES = {shared_bytes}, NUM_LINES = {first_line + len(lines)} }};",
            "static _Alignas(128) char shared_memory[SHARED_BYTES + 1];",
            *arrays,
            "static void kernel(const uint64_t *args, const Place *place) {",
            "uint64_t _temp;",
            *code.lines,
            "",
        ]
    )


def _constants(ptx: str, code: _Code) -> list[str]:
    """Declare the arrays of constants, whose bounds ptxas knows and nobody checks."""
    found = re.findall(r"\.(?:const|global) \.align (\d+) \.b8 (\w+)\[(\d+)\] = \{([^}]*)\}", ptx)
    code.names.update((name, f"((uint64_t){name})") for _, name, _, _ in found)
    return [
        f"static const _Alignas({align}) unsigned char {name}[{size}] = {{{data}}};"
        for align, name, size, data in found
    ]


def _translate_line(code: _Code, line: str, number: int) -> None:
    if scoped := re.fullmatch(r"\{ \.reg \.b32 tmp; (.*;) \}", line):
        line = scoped[1].replace("tmp", "%temp")
    if declared := re.fullmatch(r"\.reg \.\w+\s+%(\w+)(?:<(\d+)>)?;", line):
        prefix, many = declared.groups()
        names = [f"_{prefix}{i} = 0" for i in range(int(many))] if many else [f"_{prefix}"]
        code.block.append(f"uint64_t {', '.join(names)};")
    elif label := re.fullmatch(r"\$(\w+):", line):
        code.end_block()
        code.lines.append(f"{label[1]}: ;")
    elif line in ("{", "}"):
        code.block.append(line)
    elif not line or line.startswith("."):  # other directives do not say what is computed
        return
    elif instruction := re.fullmatch(r"(?:@(!?)%(\w+)\s+)?([\w.]+)\s*(.*);", line):
        negated, guard, opcode, rest = instruction.groups()
        code.steps += 1
        statement = _statement(code, opcode, _operands(rest), number)
        code.block.append(f"if ({negated}_{guard}) {statement}" if guard else statement)
        if opcode.startswith(("bra", "ret", "bar")):
            code.end_block()
    else:
        raise NotImplementedError(f"PTX line {number}: {line}")


def _operands(text: str) -> list[str]:
    return [part.strip() for part in re.split(r",(?![^{]*\})", text)] if text else []


def _statement(code: _Code, opcode: str, operands: list[str], line: int) -> str:
    name, *parts = opcode.split(".")
    kind = parts[-1] if parts else ""
    if name == "bra":
        return f"goto {operands[0].lstrip('$')};"
    if name == "ret":
        return "return;"
    if name == "bar":
        return f"barrier({line});"
    if name == "ld" and "param" in parts:
        return f"{code.raw(operands[0])} = {code.raw(operands[1].strip('[]'))};"
    space = "shared" if "shared" in parts else "global"
    if name == "ld":
        return (
            f"LOAD({code.raw(operands[0])}, {kind}, {space}, {code.address(operands[1])}, {line})"
        )
    if name == "st":
        value = f"as_{kind}({code.raw(operands[1])})"
        return f"STORE({kind}, {space}, {code.address(operands[0])}, {value}, {line})"
    if name == "mov" and "{" in operands[0]:
        both, targets = code.raw(operands[1]), operands[0].strip("{}").split(", ")
        halves = zip(targets, (f"as_u32({both})", f"{both} >> 32"), strict=True)
        return " ".join(f"{code.raw(to)} = {half};" for to, half in halves if to != "_")
    if name == "mov" and "{" in operands[1]:
        low, high = (f"as_u32({code.raw(part)})" for part in operands[1].strip("{}").split(", "))
        return f"{code.raw(operands[0])} = (uint64_t){high} << 32 | {low};"
    target, *sources = (code.raw(operand) for operand in operands)
    return f"{target} = {_value(opcode, sources, line)};"


def _value(opcode: str, sources: list[str], line: int) -> str:
    """Return the expression of a result."""
    name, *parts = opcode.split(".")
    kind = parts[-1] if parts else "u64"
    values = [f"as_{kind}({source})" for source in sources]
    if name == "cvta":
        return sources[0]
    if name == "cvt":
        return _converted(parts, sources[0])
    if name == "setp":
        return _COMPARED[parts[0]].format(*values)
    table = {"f": _FLOATS, "p": _PREDICATES}.get(kind[0], _INTEGERS)
    key = next((key for key in (f"{name}.{parts[0]}", name) if key in table), None)
    if key is None:
        raise NotImplementedError(f"PTX line {line}: {opcode}")
    if key == "shr" and kind[0] != "s":
        key = "shr.u"
    bits = int(kind[1:]) if kind != "pred" else 1
    wide = "s64" if kind[0] == "s" else "u64"
    if key == "mul.hi" and bits == 64:
        wide = "__int128" if kind == "s64" else "unsigned __int128"
    names = {f"r{number}": source for number, source in enumerate(sources)}
    names |= {"W": wide, "T": kind, "F": "f" if bits == 32 else "", "L": "ll" if bits == 64 else ""}
    found = table[key].format(*values, **names, bits=bits, line=line)
    return f"put_{wide if '.wide' in key else _RESULTS.get(key, kind)}({found})"


def _converted(parts: list[str], source: str) -> str:
    target, kind = parts[-2:]
    value = f"as_{kind}({source})"
    rounded = next((f"{_ROUNDED[part]}({value})" for part in parts if part in _ROUNDED), value)
    if kind[0] == "f" and target[0] != "f":
        narrow = int(kind == "f32" and target[1:] == "32")
        return f"put_{target}(to_{target}({rounded}, {narrow}))"
    return f"put_{target}(({target}){rounded})"
