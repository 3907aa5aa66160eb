"""Hydra groups: data, model, optimizer, transform, sampler, recipe; the registry makes the group loss."""
