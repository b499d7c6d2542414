"""The first instance of a variadic, where other patterns stand in the place of its templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gsl.attr.ast import Ast
from gsl.attr.evaluate import same
from gsl.pat import Call, Leaf, Pattern, Variadic
from gsl.prove.matched import Matched
from gsl.prove.path import Path
from gsl.prove.poly import Poly
from gsl.prove.relation import Unproved
from gsl.prove.tensor import DTYPES, Real
from gsl.prove.whole import Whole, number

if TYPE_CHECKING:
    from gsl.prove.source import SourceSide


def fits(side: SourceSide, variadic: Variadic) -> None:
    """Show that what stands in the place of the templates in the first instance is an instance of them, too.

    Unproved if it may not be one.
    """
    first = dict(zip(variadic.templates, variadic.first))
    nodes = side.bindings.nodes
    nodes.update({(template, (Poly(),)): nodes[other] for template, other in first.items()})
    with side.instance((Poly(),)):
        for template, other in first.items():
            node = nodes[other]
            if isinstance(template, Call) and isinstance(other, Call):
                wanted = [first.get(operand, operand) for operand in template.operands or ()]
                if template.op is not other.op or wanted != list(other.operands or ()):
                    raise Unproved("the first instance may be another one than its template")
                demands = [(name, node.attrs[name]) for name in template.attrs if name in node.attrs]
                pairs = [(template.attrs[name], value) for name, value in demands]
            elif isinstance(template, Leaf) and isinstance(other, Leaf):
                pairs = []
            else:
                raise Unproved("the first instance may be another one than its template")
            for expression, value in [*pairs, *guarded(template, node)]:
                if not surely_equal(side.path, side.evaluated(expression), value):
                    raise Unproved(f"the first instance may not satisfy {expression!r}")
    for template in first:
        del nodes[template, (Poly(),)]


def guarded(template: Pattern, node: Matched) -> list[tuple[Ast, Any]]:
    """What is demanded of the type of a node, with what it is."""
    guard, found = template.guard, list[tuple[Ast, Any]]()
    if guard is None:
        return found
    if guard.values not in (None, node.calc.path.domains.get(node.name)):
        raise Unproved("the first instance may have other values")
    for name in ("shape", "dtype", "ndim"):
        wanted = getattr(guard, name)
        if name == "shape" and isinstance(wanted, tuple):
            if len(wanted) != node.ndim:
                raise Unproved("the first instance may have another rank")
            found += [(size, own) for size, own in zip(wanted, node.shape) if size is not None]
        elif wanted is not None:
            found.append((wanted, getattr(node, name)))
    return found


def surely_equal(path: Path, left: Any, right: Any) -> bool:
    """True if two values are known to be equal."""
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and all(surely_equal(path, a, b) for a, b in zip(left, right))
    if isinstance(left, Whole) or isinstance(right, Whole):
        codes = [DTYPES.index(side) if isinstance(side, str) and side in DTYPES else side for side in (left, right)]
        return all(isinstance(side, (int, Whole)) and not isinstance(side, bool) for side in codes) and path.holds(
            ("==", number(codes[0]) - number(codes[1])))  # fmt: skip
    return not isinstance(left, Real) and not isinstance(right, Real) and same(left, right)
