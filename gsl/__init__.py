"""GSL, the Graph Substitution Language."""
