"""Real images, three models, one page: HAPPIER, a fine-only baseline and HAPPIER_S, and their mistakes."""

from happier.demo.run import BUDGETS, Budget, Demo, demo

__all__ = ["BUDGETS", "Budget", "Demo", "demo"]
