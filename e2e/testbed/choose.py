"""Choose where clusters come from: by name, or by whether Docker answers; and say so."""

from .docker import Docker
from .errors import TestbedError
from .places import Places

IN_WORDS = {
    "local": "local: bare control planes on this machine{why}.\n"
    "kwok only plays the target's nodes and pods: they get Running, Ready and deleted, but "
    "nothing runs in them (no logs, no exec).",
    "kind": "kind: two real clusters in Docker containers, with real kubelets and containers.",
    "existing": "existing: the two clusters you named.",
}


def provider_name(places: Places, named: str = "") -> str:
    """Return the provider the user named, or the one that fits: kind where Docker answers.

    Raises:
        TestbedError: there is no provider of the name.
    """
    name = (
        named or places.named_provider or ("kind" if Docker(places=places).answers() else "local")
    )
    if name not in IN_WORDS:
        raise TestbedError(f"There is no provider {name!r}; there are {', '.join(IN_WORDS)}.")
    return name


def in_words(name: str, places: Places, named: str = "") -> str:
    """Say which provider it is, why, and what a person may expect of it.

    `named` is what the user named, if not by the environment variable.
    """
    why = ""
    if name == "local" and not (named or places.named_provider):
        complaint = Docker(places=places).complaint()
        why = f", because Docker does not answer ({complaint})" if complaint else ""
    return f"Provider {IN_WORDS[name].format(why=why)}"
