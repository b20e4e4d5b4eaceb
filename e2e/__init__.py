"""End-to-end tests and the test bed they run on."""
