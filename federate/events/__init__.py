"""Target to hub: what the target's own parts say about a mirror, told about its hub pod."""
