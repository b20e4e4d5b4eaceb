"""Kubernetes' own conformance tests: what passes on the target passes through the virtual node."""
