"""Real API servers without kubelets, started at first use."""

from e2e.testbed.fixtures import *  # noqa: F403
