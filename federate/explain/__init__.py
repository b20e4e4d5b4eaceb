"""Why a pod does or does not run, and how a virtual node stands: the whole road in plain words."""
