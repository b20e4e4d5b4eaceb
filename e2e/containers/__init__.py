"""What a user sees of real containers: hub and target are kind clusters, federate stands between.

Every container runs the program of `e2e/images`, which tells a witness outside of both clusters
when it starts and how it ends (`reports`). A module's objects live in one `Crate`, and most are
created before its first test: kubelets are slow, and what waits can wait side by side.
"""
