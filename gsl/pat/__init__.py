"""Patterns: immutable values from which sources and targets of rules are built."""

from gsl.pat.base import Pattern, same_attr, walk
from gsl.pat.call import (
    Call,
    GetItem,
    Like,
    Tuple,
    is_const,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    to_pattern,
    wildcard,
)
from gsl.pat.choice import Alt, And, Cond, Match, Not
from gsl.pat.copying import dup, make
from gsl.pat.fused import Fused, Module
from gsl.pat.leaf import Const, Exactly, Input, Leaf, Param, Variable, Wildcard
from gsl.pat.opclass import AnyOp, NoneOf, OneOf, OpClass, OpWithTrait
from gsl.pat.typed import TypeGuard
from gsl.pat.use import (
    AttrEqual,
    Constraint,
    ExternUse,
    Group,
    IsOutput,
    NonLeafExternUse,
    Seq,
    Unique,
    Use,
    attr_eq,
    fork_to,
    has_head,
)
from gsl.pat.variadic import Instance, Maybe, Repeat, Segment, Variadic
from gsl.spec.natives import OpName

__all__ = [
    "Alt", "And", "AnyOp", "AttrEqual", "Call", "Cond", "Const", "Constraint", "Exactly", "ExternUse", "Fused",
    "GetItem", "Group", "Input", "Instance", "IsOutput", "Leaf", "Like", "Match", "Maybe", "Module", "NonLeafExternUse",
    "NoneOf", "Not", "OneOf", "OpClass", "OpName", "OpWithTrait", "Param", "Pattern", "Repeat", "Segment", "Seq",
    "Tuple", "TypeGuard", "Unique", "Use", "Variable", "Variadic", "Wildcard", "attr_eq", "dup", "fork_to", "has_head",
    "is_const", "is_op", "is_tuple", "is_tuple_get_item", "is_var", "make", "same_attr", "to_pattern", "walk",
    "wildcard",
]  # fmt: skip
