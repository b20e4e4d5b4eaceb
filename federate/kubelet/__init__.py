"""The virtual node's side towards the hub's API server: what a kubelet answers on port 10250."""
