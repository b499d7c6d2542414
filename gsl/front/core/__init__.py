"""The parts of a front end for tensors that do not depend on the framework."""
