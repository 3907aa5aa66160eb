"""Neighbours vote down the tree; calibrated probabilities; the deepest class that it is sure of."""
