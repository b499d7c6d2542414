"""Random patterns, constraints and rules from the whole public interface; well-formed or not is up to chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from gsl import Subst, Trait, attr, attr_eq, dup, fork_to, is_op, make, op, pat
from gsl.pat import Pattern

UNARY = ("nn.relu", "sigmoid", "tanh", "negative", "nn.leaky_relu")
BINARY = ("add", "multiply", "maximum", "subtract")
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2.0, 0.5, "add", (4,), (), (1, None), [4], float("nan"), object(), 10**30,
)  # fmt: skip
NAMES = ("alpha", "shape", "dtype", "ndim", "strides", "index", "value", "length", "op", "nonsense")
CLASSES = (
    lambda: pat.OneOf(*UNARY), lambda: pat.OneOf(*BINARY), lambda: pat.AnyOp(), lambda: pat.NoneOf("add", op.Tanh),
    lambda: pat.OpWithTrait("element_wise"), lambda: pat.OpWithTrait(Trait.ACTIVATION),
    lambda: pat.OneOf("nn.relu", "add"), lambda: pat.OneOf("nonsense"), lambda: pat.OneOf(),
)  # fmt: skip
LEAVES: dict[str, Callable[..., Any]] = {
    "wildcard": pat.Wildcard, "variable": pat.Variable, "input": pat.Input, "param": pat.Param,
}  # fmt: skip


class Expressions:
    """Draws patterns, attribute expressions, constraints and rules; what was drawn may be used again."""

    def __init__(self, draw: st.DataObject) -> None:
        self.data = draw
        self.made: list[Any] = [pat.Wildcard(), pat.Wildcard()]
        self.symbols = [attr.Symbol()]
        self.classes: list[Any] = []

    def of(self, *choices: Any) -> Any:
        return self.data.draw(st.sampled_from(choices))

    def chance(self, one_in: int) -> bool:
        return bool(self.data.draw(st.integers(0, one_in - 1)) == one_in - 1)

    # Patterns.

    def pattern(self, depth: int) -> Any:
        """A pattern, or what may stand for one: a number, a list, rarely something wrong."""
        if self.chance(3):
            return self.of(*self.made)
        if self.chance(25):
            return self.of(1, 2.0, [1.0, 2.0], True, *VALUES)
        made = getattr(self, f"_{self.of(*(DEEP if depth > 0 else FLAT))}")(depth - 1)
        self.made.append(made)
        return made

    def _wildcard(self, depth: int) -> Any:
        given: dict[str, Any] = {}
        if self.chance(3):
            given[self.of("shape", "dtype", "ndim", "distinct")] = self.of(
                (4,), (None,), "float32", 1, True, *VALUES
            ) if self.chance(2) else self.value(0)
        return LEAVES[self.of(*LEAVES)](**given)

    def _const(self, depth: int) -> Any:
        return pat.Const(*([] if self.chance(3) else [self.value_or(2, 1.0, *VALUES)]))

    def _free(self, depth: int) -> Any:
        return is_op(self.operator_class() if self.chance(6) else self.of(*UNARY, *BINARY, *UNARY, *BINARY, "nonsense"))

    def operator_class(self) -> Any:
        if not self.classes or self.chance(2):
            self.classes.append(self.of(*CLASSES)())
        return self.of(*self.classes)

    def attributes(self) -> dict[str, Any]:
        if self.chance(3):
            return {self.of("alpha", *NAMES): self.value_or(0.0, 1.0, *VALUES)}
        return {}

    def _unary(self, depth: int) -> Any:
        name = self.of(*UNARY)
        given = {"alpha": self.value_or(0.0, 1.0)} if name == "nn.leaky_relu" and self.chance(2) else {}
        return pat.Call(name, self.pattern(depth), **(given if not self.chance(12) else self.attributes()))

    def _binary(self, depth: int) -> Any:
        return pat.Call(self.of(*BINARY), self.pattern(depth), self.pattern(depth))

    def _class(self, depth: int) -> Any:
        operands = [self.pattern(depth) for _ in range(self.of(1, 1, 1, 2))]
        return pat.Call(self.operator_class(), *operands, **self.attributes())

    def _wrong_call(self, depth: int) -> Any:
        name = self.of(*UNARY, *BINARY, "nonsense", "concatenate", "split", "nn.conv2d", len, 3, None, "")
        return pat.Call(name, *[self.pattern(depth) for _ in range(self.of(0, 1, 2, 3))], **self.attributes())

    def _sugar(self, depth: int) -> Any:
        one, other = self.pattern(depth), self.pattern(depth)
        return self.of(
            lambda: one + other, lambda: one * 2, lambda: -one, lambda: one @ other, lambda: one / other,
            lambda: 1 - one, lambda: op.ReLU(one), lambda: op.LeakyReLU(one, alpha=self.value(1)),
            lambda: op.Concatenate([one, other], axis=0), lambda: one.has_shape((4,)), lambda: one.has_ndim(1),
        )()  # fmt: skip

    def _tuple(self, depth: int) -> Any:
        return pat.Tuple(*[self.pattern(depth) for _ in range(self.of(1, 2, 2, 3))])

    def _field(self, depth: int) -> Any:
        whole = self._tuple(depth) if self.chance(2) else self.pattern(depth)
        return pat.GetItem(whole, self.value_or(None, 0, 0, 1, 1, -1, 7, *self.symbols))

    def _alt(self, depth: int) -> Any:
        return pat.Alt(*[self.pattern(depth) for _ in range(self.of(2, 2, 3, 1))])

    def _either(self, depth: int) -> Any:
        return self.pattern(depth) | self.pattern(depth)

    def _both(self, depth: int) -> Any:
        return self.pattern(depth) & self.pattern(depth)

    def _not(self, depth: int) -> Any:
        return ~self.pattern(depth)

    def _cond(self, depth: int) -> Any:
        return pat.Cond(self.value(1), self.pattern(depth), self.pattern(depth))

    def _match(self, depth: int) -> Any:
        alternatives = [made for made in self.made if isinstance(made, pat.Alt)] or self.made
        return pat.Match(self.of(*alternatives), [self.pattern(depth) for _ in range(self.of(2, 2, 1))])

    def _maybe(self, depth: int) -> Any:
        on = self.pattern(depth)
        return pat.Maybe(pat.Call(self.of(*UNARY), on) if self.chance(2) else self.pattern(depth), on=on)

    def _repeat(self, depth: int) -> Any:
        inner = Expressions(self.data).pattern(depth) if self.chance(2) else self.pattern(depth)
        return pat.Repeat(inner, self.of(1, 1, 2, 0, -1), self.of(None, 1, 2, 3), greedy=self.chance(2))

    def _variadic(self, depth: int) -> Any:
        field = self.pattern(depth)
        known = list(pat.walk(field)) if isinstance(field, Pattern) else [field]
        given: dict[str, Any] = {"templates": [p for p in known if self.chance(2)] or [field]}
        if self.chance(3):
            given["first"] = [self.pattern(depth) for _ in given["templates"]]
        if self.chance(3):
            given["index"] = self.of(*self.symbols)
        if self.chance(3):
            given["length"] = self.value_or(2, attr.Symbol())
        if self.chance(3):
            given["min_len"] = self.of(1, 2, 0, -1, None)
        return pat.Variadic(field, **given)

    def _instance(self, depth: int) -> Any:
        variadics = [made for made in self.made if isinstance(made, pat.Variadic)]
        if not variadics:
            return self._variadic(depth)
        variadic = self.of(*variadics)
        return variadic(self.of(*variadic.templates, self.pattern(depth)), self.of(0, 1, *self.symbols))

    def _like(self, depth: int) -> Any:
        return self.pattern(depth).like(*[self.pattern(depth) for _ in range(self.of(1, 2))], **self.attributes())

    def _fused(self, depth: int) -> Any:
        return pat.Fused(self.of("g", "", "a b"), **self.attributes())

    def _use(self, depth: int) -> Any:
        one, other = self.pattern(depth), self.pattern(depth)
        return self.of(
            lambda: one > other, lambda: one >> other, lambda: one ^ other,
            lambda: one.used_by(other, self.of(0, 1, 5, -1, None)), lambda: one.only_used_by(other),
        )()  # fmt: skip

    def _alone(self, depth: int) -> Any:
        one = self.pattern(depth)
        return self.of(one.uniq, lambda: one.extern_use(self.chance(2)), one.is_output)()

    def _copy(self, depth: int) -> Any:
        return dup(self.pattern(depth)) if self.chance(2) else make(2, self.pattern(depth))[0]

    # Attribute expressions.

    def value(self, depth: int) -> Any:
        """An attribute expression, or a plain value."""
        if depth < 0 or self.chance(4):
            return self.of(0, 1, 2, 1.0, True, (4,), "float32", *self.symbols, attr.Const(None))
        if self.chance(2):
            patterns = [made for made in self.made if isinstance(made, Pattern)]
            return getattr(self.of(*patterns), self.of(*NAMES[:4], *NAMES[:4], *NAMES))
        a, b = self.value(depth - 1), self.value(depth - 1)
        function = self.of(
            lambda: a + b, lambda: a - b, lambda: a * b, lambda: a / b, lambda: a // b, lambda: a % b, lambda: a == b,
            lambda: a < b, lambda: a >= b, lambda: a & b, lambda: a | b, lambda: ~a, lambda: a[b], lambda: a[:1],
            lambda: a**b, lambda: -a, lambda: attr.Tuple(a, b), lambda: attr.Len(a), lambda: attr.In(a, b),
            lambda: attr.Reverse(a), lambda: attr.Cond(a, b, a), lambda: attr.Sum(a), lambda: attr.max(a, b),
            lambda: attr.all(a), lambda: attr.Map(a, lambda item: item + b), lambda: attr.Zip(a, b),
            lambda: attr.Range(a), lambda: attr.Variadic(lambda i: a[i], b),
            lambda: attr.ReduceIndexed("+", lambda i: a * i, b, 0), lambda: attr.Match(self.of(*self.made), [a, b]),
        )  # fmt: skip
        return function()

    def value_or(self, *plain: Any) -> Any:
        """One of some plain values, sometimes an expression instead."""
        return self.value(1) if self.chance(4) else self.of(*plain)

    # Constraints and rules.

    def condition(self) -> Any:
        kind = self.of("value", "value", "fork", "equal", "use", "alone", "function", "leaves", "wrong")
        if kind == "value":
            return self.value(2)
        if kind == "fork":
            return fork_to(*[self.pattern(1) for _ in range(self.of(1, 2, 3))])
        if kind == "equal":
            return attr_eq(*[self.of(*self.made) for _ in range(2)], names=self.of(None, "alpha", ["shape"]))
        if kind == "function":
            return self.of(lambda match: True, lambda match: "no", lambda match: len(match.outputs) == 1)
        if kind == "leaves":
            return pat.NonLeafExternUse(self.chance(2))
        return self._use(1) if kind == "use" else self._alone(1) if kind == "alone" else self.of(*VALUES)

    def rule(self) -> Subst:
        """A rule; raises what building one raises."""
        source: Any = self.pattern(3)
        if self.chance(3):
            source = self.of(lambda: [source, self.pattern(2)], lambda: fork_to(source, self.pattern(2)), list)()
        given: dict[str, Any] = {}
        if self.chance(3):
            given["where"] = [self.condition() for _ in range(self.of(1, 1, 2))]
        if self.chance(5):
            given["extern_use"] = self.of(True, False, None)
        if self.chance(6):
            given["fuzzy"] = self.of(("cast",), "nn.relu", ("nn.relu", "tanh"), ["nonsense"])
        if self.chance(6):
            given["distinct"] = True
        return Subst(source, self.target(source), **given)

    def target(self, source: Any) -> Any:
        kind = self.of("outputs", "outputs", "same", "pattern", "patterns", "function", "wrong")
        if kind == "outputs":
            return lambda match: list(match.outputs)
        if kind == "same":
            return source
        if kind == "pattern":
            return self.pattern(2)
        if kind == "patterns":
            return [self.pattern(2) for _ in range(self.of(1, 2))]
        if kind == "function":
            made = self.pattern(1)
            return self.of(lambda match: made, lambda match: 1 // 0, lambda match: None, lambda match: [made, made])
        return self.of(*VALUES)


FLAT = ("wildcard", "wildcard", "const", "free", "free")
DEEP = (
    *FLAT, *["unary", "binary", "use"] * 4, *["class", "alt", "either", "both", "field", "maybe", "sugar"] * 2,
    "tuple", "not", "repeat", "variadic", "instance", "like", "cond", "match", "fused", "alone", "copy", "wrong_call",
)  # fmt: skip

