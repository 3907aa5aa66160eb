"""Configuration -> a run directory: the loop, its checkpoints, the Hydra entry point."""
