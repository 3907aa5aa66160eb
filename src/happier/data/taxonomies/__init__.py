"""A taxonomy for a flat list of classes: from WordNet, clusters, a table or iNaturalist."""
