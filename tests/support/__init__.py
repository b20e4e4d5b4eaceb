"""What tests stand on: a cluster in memory, virtual time, builders and random worlds."""
