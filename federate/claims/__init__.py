"""Storage: claims of the hub that stand in the target, and what mirrors call them."""
