"""What the end-to-end tests stand on: a process to test and an independent witness of its deeds."""
