"""Proofs of rules: equality for all sizes, attributes and values, by expressions of indices."""

from gsl.prove.proof import NoProof, Proof, prove

__all__ = ["NoProof", "Proof", "prove"]
