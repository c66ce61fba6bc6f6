"""The names of HDUs that are counted from that of a row, as the first file has them.

Files of another order would deliver other images under the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Names = tuple[str, int]
"""EXTNAME, in capitals, and EXTVER of an HDU."""
Beside = Mapping[str, frozenset[Names]]
"""By the EXTNAME of a row's HDU, those of the other HDU, and by how much its EXTVER is more."""


def beside(
    own: Sequence[Names], others: Sequence[Names], relative: int
) -> dict[str, frozenset[Names]]:
    """Return which HDUs of a file are `relative` HDUs after its own, or in another file."""
    found: dict[str, set[Names]] = {}
    for number, (name, version) in enumerate(own):
        pairs = found.setdefault(name, set())
        if 0 <= number + relative < len(others):
            other, other_version = others[number + relative]
            pairs.add((other, other_version - version))
    return {name: frozenset(pairs) for name, pairs in found.items()}


def check_beside(own: Names, found: Names, expected: Beside) -> None:
    """Raise ValueError if an HDU has another name than in the first file, beside that of the row.

    Files whose HDU of the row has a name that is not in the first file are not compared.
    """
    pairs = expected.get(own[0])
    if pairs is None or (found[0], found[1] - own[1]) in pairs:
        return
    there = " or ".join(sorted(_named(name, own[1] + more) for name, more in pairs)) or "none"
    raise ValueError(
        f"its HDU is {_named(*found)}, beside {_named(*own)}; by the first file it is {there}: "
        "leave the row out, or name the HDU in place of relative, if each file has one of that name"
    )


def _named(name: str, version: int) -> str:
    return f"{name or 'without EXTNAME'}" + (f" (EXTVER {version})" if version != 1 else "")
