"""The paper's experiments on real images from packages: studies, runs, tables, figures."""
