"""The virtual node exists and is alive."""
