"""Turn the name of a provider into one, or say what there is."""

from .binaries import Binaries
from .errors import TestbedError
from .existing import ExistingProvider
from .local import LocalProvider
from .provider import Provider


def choose_provider(name: str, binaries: Binaries) -> Provider:
    """Return a provider whose clusters live as long as this process.

    Raises:
        TestbedError: there is no provider of that name.
    """
    match name:
        case "local":
            return LocalProvider(binaries)
        case "existing":
            return ExistingProvider(binaries)
        case _:
            raise no_such_provider(name)


def no_such_provider(name: str) -> TestbedError:
    if name == "kind":
        return TestbedError(
            "The provider kind is not there yet; use local, which needs no containers, or "
            "existing with the kubeconfigs of kind clusters you made yourself."
        )
    return TestbedError(f"There is no provider {name!r}; there are local and existing.")
