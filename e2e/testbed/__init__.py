"""Start real Kubernetes clusters for tests and for trying federate by hand.

The seam is `provider`: a provider turns a `ClusterSpec` into a running `TestCluster`.
`local` runs bare control planes on this machine, `kind` real clusters in Docker containers, and
`existing` hands out clusters that are there already. `fixtures` offers them to pytest,
`python -m e2e.testbed` to a shell.
"""
