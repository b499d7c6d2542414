"""Benchmarks: GSL beside other ways to rewrite the same torch graphs. ``python -m benchmarks`` runs them."""
