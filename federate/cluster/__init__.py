"""The one door to an API server."""
