"""Provider `existing`: two clusters somebody else runs, named by environment variables.

Nothing is started or stopped; the clusters' content is the tests' own business.
"""

import json
from pathlib import Path

from .binaries import Binaries
from .errors import TestbedError
from .kubeconfigs import read_kubeconfig, server_of
from .places import HUB_KUBECONFIG_VARIABLE, TARGET_KUBECONFIG_VARIABLE
from .provider import ClusterSpec, TestCluster

VARIABLES = {"hub": HUB_KUBECONFIG_VARIABLE, "target": TARGET_KUBECONFIG_VARIABLE}


class ExistingProvider:
    """Hand out the clusters of the user; only a spec's name is looked at."""

    name = "existing"

    def __init__(self, binaries: Binaries) -> None:
        self.binaries = binaries

    def start(self, spec: ClusterSpec) -> TestCluster:
        """Return the cluster for `hub` or `target` after asking it for its version.

        Raises:
            TestbedError: it is not named, or does not answer.
        """
        kubeconfig = self.kubeconfig(spec.name)
        cluster = TestCluster(
            name=spec.name,
            kubeconfig=kubeconfig,
            api_url=server_of(read_kubeconfig(kubeconfig)),
            version="",
            find_kubectl=self.binaries.find_users_kubectl,
        )
        cluster.version = parse_version(cluster.kubectl("get", "--raw", "/version"))
        return cluster

    def close(self) -> None:
        """Do nothing: the clusters were there before and stay."""

    def kubeconfig(self, name: str) -> Path:
        variable = VARIABLES.get(name)
        if variable is None:
            raise TestbedError(
                f"The provider existing has a hub and a target, but no cluster {name}; "
                "tests that need more clusters need the provider local."
            )
        path = self.binaries.places.existing_kubeconfig(variable)
        if path is None:
            raise TestbedError(
                f"The provider existing needs the {name}'s kubeconfig in {variable}."
            )
        return path


def parse_version(answer: str) -> str:
    try:
        return str(json.loads(answer)["gitVersion"])
    except (ValueError, KeyError) as error:
        raise TestbedError(f"The API server's /version makes no sense: {answer[:256]}") from error
