"""Real images, two models, one page: train HAPPIER and a fine-only baseline and compare their mistakes."""

from happier.demo.run import BUDGETS, Budget, Demo, demo

__all__ = ["BUDGETS", "Budget", "Demo", "demo"]
