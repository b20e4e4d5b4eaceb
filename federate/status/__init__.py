"""Target to hub: the truth comes up."""
