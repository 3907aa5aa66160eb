"""What is on disk: files that appear whole, locks, checksums, checked readers."""
