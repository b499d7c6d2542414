"""A rule as Python: the statements that build it, from which one learns the language."""

from __future__ import annotations

import keyword
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, Final

from gsl.attr import ast
from gsl.attr.ast import Ast
from gsl.errors import PatternError
from gsl.graph import SymDim, op_name
from gsl.pat.base import Pattern, walk
from gsl.pat.call import Call, GetItem, Like, Tuple
from gsl.pat.choice import Alt, And, Cond, Match, Not
from gsl.pat.leaf import Const, Leaf, Wildcard
from gsl.pat.opclass import AnyOp, NoneOf, OneOf, OpClass, OpWithTrait
from gsl.pat.typed import TENSOR, TypeGuard
from gsl.pat.use import ExternUse, IsOutput, Seq, Unique
from gsl.pat.variadic import Instance, Repeat, Segment, Variadic, references
from gsl.spec import DeclaredSpec, OpSpec
from gsl.spec.natives import OnnxOp, OpName

INFIX: Final = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "matmul": "@"}
WIDTH: Final = 100
"""The longest line in which calls stand inside of others."""


def code(
    name: str, source: Sequence[Pattern], target: Sequence[Pattern], where: Sequence[Any], given: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> str:  # fmt: skip
    """The statements that build a rule under a name, after ``from gsl import *``.

    ``given`` are names of patterns, ``arguments`` further ones of the rule. PatternError for what has no such text:
    functions, constraints, arrays.
    """
    return _Coder(source, target, where, given).text(name, arguments)


def statements(outputs: Sequence[Pattern], given: Mapping[str, Pattern]) -> str:
    """The statements that build patterns, each of which has a variable of its own if ``given`` names it.

    PatternError for what has no such text.
    """
    return "\n".join(_Coder(outputs, (), (), given).statements())


class _Coder:
    def __init__(
        self, source: Sequence[Pattern], target: Sequence[Pattern], where: Sequence[Any], given: Mapping[str, Any]
    ) -> None:
        self.source, self.target, self.where = source, target, where
        self.texts: dict[Pattern, str] = {}
        """The text for a pattern that is written: its name, or the whole of it."""
        patterns = list(walk(*source, *target))
        self.declared = {spec.cls: spec for used in patterns if isinstance(spec := used.operator, DeclaredSpec)}
        """The operators of users by their names."""
        self.taken = {"pat", "op", "attr", "Subst", *keyword.kwlist, *self.declared}
        names = {pattern: name for name, pattern in given.items() if isinstance(pattern, Pattern)}
        self.given = {pattern: self._free(_identifier(name)) for pattern, name in names.items()}
        """The variables of patterns that have a name."""
        self.taken |= {_identifier(name) for name in given}
        read = [used for pattern in patterns for node in pattern.expressions() for used in references(node)]
        read += [used for condition in where if isinstance(condition, Ast) for used in references(condition)]
        read += [used.of for used in patterns if isinstance(used, Like)]
        read += [used.alternative for used in patterns if isinstance(used, Match)]
        instances = [used for used in (*patterns, *read) if isinstance(used, Instance)]
        read += [part for used in instances for part in (used.variadic, used.template)]
        variadics = [used for used in patterns if isinstance(used, Variadic)]
        self.any = {used.field for used in variadics if _is_any(used) and used.field not in read}
        self.any |= {used.both[1] for used in patterns if isinstance(used, And) and _has_attributes(used.both[1])}
        """The fields of segments of any fields, and what stands for the attributes of ``has_attr``: these are not
        written."""
        read += {part for used in variadics for part in (*used.templates, *used.first)} - self.any
        uses = Counter(child for pattern in patterns for child in pattern.children())
        known = {*walk(*source), *read}
        self.fields = {
            used for used in patterns if isinstance(used, GetItem) and used.guard is None and used not in known
        }
        """The fields that are new in the target: these may be written anew wherever they are used."""
        read += [used.tuple for used in self.fields if uses[used] != 1]
        classes = Counter(used.op for used in patterns if isinstance(used, Call) and isinstance(used.op, OpClass))
        self.classes = {each: self._free("ops") for each, uses in classes.items() if uses > 1}
        """The names of classes of operators that are used at several places."""
        self.symbols: dict[ast.Symbol, str] = {}
        """The names of symbols."""
        for used in variadics:
            if used.symbol is not None and used.symbol not in self.symbols:
                self.symbols[used.symbol] = self._free(used.symbol.name)
        self.alone = {used for used, places in uses.items() if places == 1} - {*read, *source, *target, *self.given}
        """The patterns that are written where they are used."""

    def statements(self) -> list[str]:
        """The statements that build the patterns."""
        lines = [*_imports(self.declared.values())]
        lines += [f"{name} = attr.Symbol({'' if symbol.name == 'i' else repr(symbol.name)})"
                 for symbol, name in self.symbols.items()]  # fmt: skip
        lines += [f"{name} = {_class(each)}" for each, name in self.classes.items()]
        for pattern in self._ordered():
            if isinstance(pattern, Instance) or pattern in self.any:
                continue
            written = self._pattern(pattern)
            inside = (pattern in self.alone and len(written) <= WIDTH // 2) or pattern in self.fields
            if inside and (not isinstance(pattern, Leaf) or isinstance(pattern, Const)):
                self.texts[pattern] = written
                continue
            variable = self._variable(pattern)
            lines.append(f"{variable} = {_bare(written)}")
            self.texts[pattern] = variable
        used = set(re.findall(r"\b(torch|tvm)\.", _QUOTED.sub("", "\n".join(lines))))
        return [*(f"import {package}" for package in sorted(used)), *lines]

    def text(self, name: str, arguments: Mapping[str, Any]) -> str:
        """All statements, with that of the rule."""
        lines = self.statements()
        conditions = [_bare(self._condition(condition)) for condition in self.where]
        words = [self._outputs(self.source), self._outputs(self.target)]
        if conditions:
            listed = f"where=[{', '.join(conditions)}]"
            split = "".join(f"        {condition},\n" for condition in conditions)
            words.append(listed if len(listed) <= WIDTH else f"where=[\n{split}    ]")
        words += [f"{key}={value!r}" for key, value in arguments.items()]
        call = f"{name} = Subst({', '.join(words)})"
        if len(call) > WIDTH:
            call = f"{name} = Subst(\n" + "".join(f"    {word},\n" for word in words) + ")"
        return "\n".join([*lines, call])

    def _ordered(self) -> Iterator[Pattern]:
        """The patterns, each after those that its expressions read."""
        done: set[Pattern] = set()
        stack = [*reversed([*walk(*self.source), *walk(*self.target)])]
        open_: set[Pattern] = set()
        while stack:
            pattern = stack[-1]
            needed = [*pattern.children(), *(used for node in pattern.expressions() for used in references(node))]
            if isinstance(pattern, Instance):
                needed += [pattern.variadic, pattern.template]
            missing = [] if pattern in open_ else [p for p in needed if p not in done]
            open_.add(pattern)
            if missing:
                stack += reversed(missing)
                continue
            stack.pop()
            if pattern not in done:
                done.add(pattern)
                yield pattern

    def _variable(self, pattern: Pattern) -> str:
        if pattern in self.given:
            return self.given[pattern]
        for side, outputs in (("source", self.source), ("target", self.target)):
            if pattern in outputs and len(outputs) == 1 and side not in self.taken:
                self.taken.add(side)
                return side
        stem = "x" if isinstance(pattern, Leaf) else _identifier(op_name(_operator(pattern)).split(".")[-1])
        if stem in ("default", ""):
            stem = "y"
        return self._free(stem)

    def _free(self, stem: str) -> str:
        """A name that is not taken, and is now."""
        number, found = 1, stem
        while found in self.taken:
            number += 1
            found = f"{stem}{number}"
        self.taken.add(found)
        return found

    def _text(self, pattern: Pattern) -> str:
        """The text for a pattern where it is used."""
        if isinstance(pattern, Instance):
            number = _bare(self.value(pattern.number))
            return _called(self.texts[pattern.variadic], [self.texts[pattern.template], number])
        return self.texts[pattern]

    def _outputs(self, outputs: Sequence[Pattern]) -> str:
        texts = [self._text(output) for output in outputs]
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

    def _condition(self, condition: Any) -> str:
        if not isinstance(condition, Ast):
            raise PatternError(
                f"a rule with the condition {getattr(condition, '__name__', condition)!s} can't be written as Python: "
                "only expressions can"
            )
        return self.value(condition)

    # Patterns

    def _pattern(self, pattern: Pattern) -> str:
        match pattern:
            case Const():
                literal = [] if pattern.literal is None else [self._literal(pattern)]
                return _called("pat.Const", [*literal, *self._demands(pattern.guard)])
            case Leaf():
                distinct = ["distinct=True"] if pattern.distinct else []
                return _called(f"pat.{type(pattern).__name__}", [*self._demands(pattern.guard), *distinct])
            case Call():
                return self._call(pattern)
            case Like():
                parts = [*map(self._operand, pattern.operands), *self._attributes(pattern.attrs)]
                return _called(f"{self._text(pattern.of)}.like", parts)
            case Tuple():
                return _called("pat.Tuple", map(self._operand, pattern.items))
            case GetItem():
                index = [] if pattern.number is None else [self.value(pattern.number)]
                whole = self._text(pattern.tuple)
                if index and pattern.guard is None:
                    return f"{whole}[{index[0]}]"
                return _called("pat.GetItem", [_bare(whole), *map(_bare, index), *self._demands(pattern.guard)])
            case Alt():
                return _called("pat.Alt", [*map(self._text, pattern.choices), *self._demands(pattern.guard)])
            case Match():
                clauses = ", ".join(map(self._operand, pattern.children()))
                return f"pat.Match({self._text(pattern.alternative)}, [{clauses}])"
            case Cond():
                sides = map(self._operand, pattern.children())
                return _called("pat.Cond", [self.value(next(iter(pattern.expressions()))), *sides])
            case And(both=(left, Call() as attributes)) if _has_attributes(attributes):
                return _called(f"{self._text(left)}.has_attr", self._attributes(attributes.attrs))
            case And():
                return f"({' & '.join(self._text(child) for child in pattern.children())})"
            case Not():
                return f"~{self._text(next(iter(pattern.children())))}"
            case Variadic():
                return _called(f"pat.{type(pattern).__name__}", self._fields(pattern))
            case Repeat():
                least = [f"min={pattern.min}"] if pattern.min > 1 else []
                most = [f"max={pattern.max}"] if pattern.max is not None else []
                flags = [f"{name}=False" for name in ("greedy", "sole") if not getattr(pattern, name)]
                return _called("pat.Repeat", [_bare(self._operand(pattern.pattern)), *least, *most, *flags])
            case Seq():
                return self._sequence(pattern)
        raise PatternError(f"{pattern!r} can't be written as Python: a rule with it is written by hand")

    def _fields(self, pattern: Variadic) -> Iterator[str]:
        """The arguments of a variadic or a segment."""
        is_any = pattern.field in self.any
        if not is_any:
            yield _bare(self._text(pattern.field))
            for name in ("templates", "first"):
                parts = ", ".join(map(self._text, getattr(pattern, name)))
                yield from [f"{name}=[{parts}]"] if parts else []
        if pattern.symbol is not None:
            yield f"index={self.symbols[pattern.symbol]}"
        if pattern.count is not None:
            yield f"length={_bare(self.value(pattern.count))}"
        if pattern.min_len:
            yield f"min_len={pattern.min_len}"
        if pattern.max_len is not None:
            yield f"max_len={pattern.max_len}"
        if isinstance(pattern, Segment) and pattern.greedy == is_any:
            yield f"greedy={pattern.greedy}"

    def _sequence(self, pattern: Seq) -> str:
        """Patterns of which each uses the one before."""
        text, *users = [self._text(part) + self._demands_on_uses(pattern, part) for part in pattern.spine]
        for use, user in zip(pattern.uses, users):
            if use.index is None:
                text = f"({text} {'>>' if use.only else '>'} {user})"
            else:
                text += f".{'only_used_by' if use.only else 'used_by'}({_bare(user)}, {use.index})"
        return text

    def _demands_on_uses(self, pattern: Seq, part: Pattern) -> str:
        texts = {Unique: ".uniq()", IsOutput: ".is_output()"}
        return "".join(
            f".extern_use({demand.used})" if isinstance(demand, ExternUse) else texts[type(demand)]
            for demand in pattern.constraints[len(pattern.uses) :] if demand.patterns() == (part,)
        )  # fmt: skip

    def _literal(self, pattern: Const) -> str:
        if not isinstance(pattern.literal, Ast):
            raise PatternError(f"{pattern.location}: an array can't be written as Python; it is a pat.Const by hand")
        return _bare(self.value(pattern.literal))

    def _call(self, pattern: Call) -> str:
        if pattern.operands is None:
            return _called("pat.is_op", [self._operator(pattern.op)])
        symbol = INFIX.get(pattern.op.name) if isinstance(pattern.op, OpSpec) else None
        operands = [self._operand(operand) for operand in pattern.operands]
        if symbol and not pattern.attrs and pattern.guard is None:
            if all(_is_number(operand) for operand in pattern.operands):
                operands[0] = self._text(pattern.operands[0])
            return f"({operands[0]} {symbol} {operands[1]})"
        parts = [*map(_bare, operands), *self._attributes(pattern.attrs), *self._demands(pattern.guard)]
        if isinstance(pattern.op, OpSpec):
            declared = isinstance(pattern.op, DeclaredSpec)
            return _called(pattern.op.cls if declared else f"op.{pattern.op.cls}", parts)
        return _called("pat.Call", [self._operator(pattern.op), *parts])

    def _operator(self, op: Any) -> str:
        """The text for an operator that has no class of its own here."""
        if isinstance(op, OpClass):
            return self.classes.get(op) or _class(op)
        return repr(op.name) if isinstance(op, OpSpec) else _native(op)

    def _operand(self, pattern: Pattern) -> str:
        """A pattern as an operand, where a number stands for a literal."""
        if pattern in self.alone and _is_number(pattern):
            return self._literal(pattern)  # type: ignore[arg-type]
        return self._text(pattern)

    def _attributes(self, attrs: Mapping[str, Ast]) -> Iterator[str]:
        for name, value in attrs.items():
            yield f"{name}={_bare(self.value(value))}"

    def _demands(self, guard: TypeGuard | None) -> Iterator[str]:
        for name in TENSOR if guard is not None else ():
            value = getattr(guard, name)
            if isinstance(value, tuple):
                yield f"{name}={_tuple('None' if size is None else _bare(self.value(size)) for size in value)}"
            elif value is not None:
                yield f"{name}={_bare(self.value(value))}"
        if guard is not None and guard.values is not None:
            yield f"values={guard.values!r}"

    # Expressions

    def value(self, node: Ast) -> str:
        """The text of an expression."""
        match node:
            case ast.Literal(value):
                return _plain(value)
            case ast.Attribute():
                return f"{self._text(node.pattern)}.{node.name}"
            case ast.Symbol():
                return self.symbols.get(node, node.name)
            case ast.TupleOf():
                return _tuple(_bare(self.value(item)) for item in node.items)
            case ast.Unary():
                return f"{node.operator}{self.value(node.operand)}"
            case ast.Binary("max" | "min" as function, left, right):
                return f"{self.value(left)}.{function}({_bare(self.value(right))})"
            case ast.Binary():
                return f"({self.value(node.left)} {node.operator} {self.value(node.right)})"
            case ast.Item():
                return f"{self._indexed(node.sequence)}[{_bare(self.value(node.index))}]"
            case ast.Slice():
                start, stop, step = ("" if part is None else _bare(self.value(part)) for part in node.bounds())
                return f"{self._indexed(node.sequence)}[{start}:{stop}{f':{step}' if step else ''}]"
            case ast.Function():
                return _called(f"attr.{node.name}", (_bare(self.value(operand)) for operand in node.operands))
            case ast.Conditional():
                parts = (node.condition, node.then, node.otherwise)
                return _called("attr.Cond", (_bare(self.value(part)) for part in parts))
            case ast.Chosen():
                clauses = ", ".join(_bare(self.value(clause)) for clause in node.clauses)
                return f"attr.Match({self._text(node.alternative)}, [{clauses}])"
            case ast.Each(over=None, length=length):
                rest = [] if length is None else [_bare(self.value(length))]
                return _called("attr.Variadic", [self._function(node), *rest])
            case ast.Each():
                assert node.over is not None
                return f"attr.Map({self.value(node.over)}, {self._function(node)})"
            case ast.Reduce():
                rest = [] if node.initial is None else [self.value(node.initial)]
                return _called("attr.ReduceTuple", [repr(node.operator), self.value(node.sequence), *rest])
        raise PatternError(f"{node!r} can't be written as Python")

    def _function(self, node: ast.Each) -> str:
        """The function of an index, whose name is that of no other symbol around it."""
        around = {*self.symbols.values(), *self.taken}
        stems = chain([node.symbol.name], (f"{node.symbol.name}{number}" for number in count(2)))
        self.symbols[node.symbol] = name = next(stem for stem in stems if stem not in around)
        text = f"lambda {name}: {self.value(node.body)}"
        del self.symbols[node.symbol]
        return text

    def _indexed(self, node: Ast) -> str:
        if isinstance(node, (ast.TupleOf, ast.Literal)):
            return f"attr.Const({self.value(node)})"
        return self.value(node)


def _has_attributes(pattern: Pattern) -> bool:
    """True for what ``has_attr`` makes: a call with attributes, and any operands."""
    return isinstance(pattern, Call) and pattern.operands is None and bool(pattern.attrs)


def _called(function: str, arguments: Iterable[str]) -> str:
    return f"{function}({', '.join(arguments)})"


def _tuple(items: Iterable[str]) -> str:
    texts = list(items)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*["]""")


def _bare(text: str) -> str:
    """A text without the parentheses around all of it, where it is no tuple."""
    if not text.startswith("("):
        return text
    depth = 0
    for place, letter in enumerate(_QUOTED.sub(lambda quoted: "_" * len(quoted[0]), text)):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if depth == 1 and letter == ",":
            return text
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1] if text != "()" else text


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return _tuple(map(_plain, value))
    if isinstance(value, SymDim) or not (
        value is None or isinstance(value, (bool, int, float, complex, str)) or type(value).__module__ == "torch"
    ):
        raise PatternError(f"{value!r} can't be written as Python: a rule with it is written by hand")
    if type(value).__module__ == "torch":
        text = str(value)
        return text if text.startswith("torch.") else f"torch.{type(value).__name__}({text!r})"  # of a device
    text = repr(value)
    return f"float({text!r})" if text in ("inf", "-inf", "nan") else text


def _class(op: OpClass) -> str:
    named = op.excluded if isinstance(op, NoneOf) else op.members or ()
    if type(op) not in (AnyOp, NoneOf, OneOf, OpWithTrait) or not all(isinstance(each, str) for each in named):
        raise PatternError(f"{op!r} can't be written as Python: it is a class by hand")
    return f"pat.{op!r}"


def _native(op: Any) -> str:
    """The text for a native operator, by a name under which it is found."""
    if isinstance(op, OnnxOp) and ("." in op.domain or not op.domain):  # any other domain reads as one of torch
        return repr(str(op))
    if isinstance(op, OpName):
        return f"pat.OpName({op.name!r})"
    if (schema := getattr(op, "_schema", None)) is not None:
        return repr(f"{schema.name}.{schema.overload_name or 'default'}")
    if type(op).__module__ == "tvm.ir.op":
        return f"tvm.ir.Op.get({op.name!r})"
    if "torch" in sys.modules:
        name = getattr(op, "__name__", "")
        for home in ("torch", "torch.nn", "torch.nn.functional", "torch.Tensor"):
            if getattr(pkgutil.resolve_name(home), name, None) is op:
                return f"{home}.{name}"
    raise PatternError(f"{op_name(op)} can't be written as Python: it has no name by which it is found")


def _operator(pattern: Pattern) -> Any:
    found = pattern.operator
    return found.name if isinstance(found, OpSpec) else type(pattern).__name__.lower() if found is None else found


def _identifier(name: str) -> str:
    found = re.sub(r"\W", "_", name)
    return f"_{found}" if found[:1].isdigit() else found


def _is_any(pattern: Variadic) -> bool:
    """True for a segment of any fields."""
    field = pattern.field
    plain = type(field) is Wildcard and field.guard is None and not field.distinct
    return isinstance(pattern, Segment) and plain and pattern.templates == (field,) and not pattern.first


def _is_number(pattern: Pattern) -> bool:
    return isinstance(pattern, Const) and isinstance(pattern.literal, ast.Literal) and pattern.guard is None


def _imports(declared: Iterable[DeclaredSpec]) -> Iterator[str]:
    """The statements that import operators of users, of those that a module has."""
    names: dict[str, list[str]] = {}
    for spec in sorted(declared, key=lambda spec: spec.home):
        module, name = spec.home
        if module != "__main__" and getattr(getattr(sys.modules.get(module), name, None), "spec", None) is spec:
            names.setdefault(module, []).append(name)
    return (f"from {module} import {', '.join(found)}" for module, found in names.items())
