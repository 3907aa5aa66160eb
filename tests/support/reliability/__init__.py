"""Try to make the commands lose something or give a wrong answer: kills, pairs, damaged files, full disks.

``python -m reliability`` (with tests/support on the path) runs everything and writes docs/reliability.md.
"""
