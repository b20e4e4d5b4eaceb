"""The virtual-kubelet project's own suite for providers, as a second judge of the virtual node.

That suite is written for nodes like ours, by people who do not know ours. It is built from its Go
module; the flags and what stands between it and the API server are in
`e2e/testbed/modules/virtual-kubelet`.
"""
