"""The benchmark: one Deployment through federate, against the same without it, from outside.

`python -m e2e.bench` starts clusters of its own and runs, in pairs that alternate, one Deployment
up to all pods Ready and down to none left: through federate, directly in the target, and directly
in both clusters at once. A witness in a process of its own watches both clusters alike in all arms;
federate's own writes are counted by the API servers. docs/benchmarks/README.md says how to read it.
"""
