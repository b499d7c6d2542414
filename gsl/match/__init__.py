"""Matching: a rule's plan, the search, and its results.

The cost of matching, for a graph of *n* nodes and *r* rules:

* *Where to look.* One table of the nodes by operator serves all rules. A rule of which an operator does not occur costs
  a look into it. From four rules on, :func:`candidates` looks once at each node from which some rule may start, at
  the operators next to it, and finds the rules for which both fit: *O(n + candidates)*, whatever *r* is. So a rule
  set costs what its candidates cost, of which there are about as many as places where two operators of a rule meet.
* *The search* from a candidate is one comparison for each pattern, where the way is given; what is chosen multiplies,
  see :mod:`gsl.match.plan`, which states the worst cases. From a hundred candidates on it is a Python function,
  :mod:`gsl.match.emit`, which makes the same choices in the same order in about a tenth of the time.
* *Many users.* A step up to a user looks at all users of a node. Where these are many, they are listed once for each
  operator and graph (:class:`UseLists`), and what a pass has rewritten is left behind, so that *k* rewrites of branches
  of one node with *u* users cost *O(k + u)*, not *O(k · u)*.

``Search.steps`` counts the goals of a search, ``Pass.tried`` the searches of a pass: both depend on nothing but rules
and graph.
"""

from gsl.match.emit import Find
from gsl.match.engine import MatchSearch, UseLists
from gsl.match.index import add_candidates, candidates
from gsl.match.plan import Candidates, Plan, Start
from gsl.match.result import Match, MatchSchema, Miss

__all__ = [
    "Candidates",
    "Find",
    "Match",
    "MatchSchema",
    "MatchSearch",
    "Miss",
    "Plan",
    "Start",
    "UseLists",
    "add_candidates",
    "candidates",
]  # fmt: skip
