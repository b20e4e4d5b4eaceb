"""What federate needs of both clusters, and whether it is there."""
