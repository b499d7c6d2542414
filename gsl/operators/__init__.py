"""Operators of users: functions of tensors, which are the meaning, as classes for patterns."""

from gsl.operators.declare import UserOperator, operator

__all__ = ["UserOperator", "operator"]
