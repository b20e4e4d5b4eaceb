"""Hub to target: the pod goes down."""
