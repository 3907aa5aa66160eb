"""``python -m happier``: the command line, for ``torchrun -m happier train ...``."""

from happier.cli import main

main()
