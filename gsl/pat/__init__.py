"""Patterns: immutable values from which sources and targets of rules are built."""

from gsl.pat.base import Pattern, TypeGuard
from gsl.pat.nodes import (
    Alt,
    And,
    Call,
    Cond,
    Const,
    Exactly,
    GetItem,
    Input,
    Instance,
    Leaf,
    Like,
    Match,
    Not,
    Param,
    Tuple,
    Variable,
    Variadic,
    Wildcard,
    same_attr,
    to_pattern,
    walk,
)
from gsl.pat.opclass import AnyOp, NoneOf, OneOf, OpClass, OpWithTrait

__all__ = [
    "Alt", "And", "AnyOp", "Call", "Cond", "Const", "Exactly", "GetItem", "Input", "Instance", "Leaf", "Like",
    "Match", "NoneOf", "Not", "OneOf", "OpClass", "OpWithTrait", "Param", "Pattern", "Tuple", "TypeGuard", "Variable",
    "Variadic", "Wildcard", "same_attr", "to_pattern", "walk",
]  # fmt: skip
