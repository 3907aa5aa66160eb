"""The addresses of the server, one module per subject."""
