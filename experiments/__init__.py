"""The paper's experiments on real images that come by package: studies, runs, tables, figures."""
