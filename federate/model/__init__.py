"""Words: what things are. Pure: no I/O, no clock, no randomness."""
