"""A fuzzer: random patterns, rules, graphs, programs and rule files, and what must hold of each.

The tests run each target on a few examples that are always the same. By hand, with other ones each time::

    python -m tests.fuzz --seconds 600 --seed 7            # all targets in turn
    python -m tests.fuzz --seconds 60 patterns rule-files  # some of them

What is found is printed as the smallest example, with the seed that leads to it again.
"""
