"""`make demo`: a Deployment submitted to a hub runs in a target, told step by step."""
