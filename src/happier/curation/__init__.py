"""Looking after a data set with a model's help: labels that are probably wrong, corrections, taxonomies."""
