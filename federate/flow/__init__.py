"""From change to action."""
