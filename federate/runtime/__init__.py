"""It all lives together."""
