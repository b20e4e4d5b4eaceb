"""Mirrors nobody wants go away."""
