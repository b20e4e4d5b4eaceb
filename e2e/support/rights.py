"""What federate asked of both clusters, by its own count, beside what the table of rights has."""

import re
from collections import Counter

from federate.check.rights import TABLE, Side

from .process import FederateProcess

REQUESTS = re.compile(
    r'^federate_requests_total\{cluster="(?P<cluster>[^"]+)",outcome="(?P<outcome>[^"]+)",'
    r'resource="(?P<resource>[^"]+)",verb="(?P<verb>[^"]+)"\} (?P<count>\S+)',
    re.MULTILINE,
)

Asked = Counter[tuple[str, str, str, str]]
"""How often, by cluster, verb, resource and outcome."""


def asked_by(federate: FederateProcess) -> Asked:
    """Read what this life of federate asked of both clusters, and what it was told."""
    found: Asked = Counter()
    for line in REQUESTS.finditer(federate.fetch("/metrics")):
        key = (line["cluster"], line["verb"], line["resource"], line["outcome"])
        found[key] += int(float(line["count"]))
    return found


def assert_all_granted(asked: Asked, federate: FederateProcess) -> None:
    """Make sure that neither API server refused anything."""
    refused = {key for key in asked if key[3] in ("Forbidden", "Unauthorized")}
    assert not refused, f"{refused}\n{federate.log_tail()}"
    assert sum(asked.values()) > 50, "the numbers were read"


def assert_all_in_table(asked: Asked) -> None:
    """Make sure that the table has every request, and say which of its rights were not used."""
    verbs = {"replace": "update"}
    for cluster, verb, resource, _ in asked:
        if resource == "none":  # documents, which everybody may read
            continue
        side = Side.HUB if cluster == "hub" else Side.TARGET
        assert any(
            row.side is side
            and row.resource in (resource, "*")
            and verbs.get(verb, verb) in row.verbs
            for row in TABLE
        ), f"{verb} {resource} at the {side} is not in federate/check/rights.py"
    used = {(c == "hub", r, verbs.get(v, v)) for c, v, r, _ in asked}
    unused = [
        f"{verb} {row.resource} at the {row.side}"
        for row in TABLE
        for verb in row.verbs
        # A watch is counted when it ends, hours later.
        if row.is_required
        and verb != "watch"
        and (row.side is Side.HUB, row.resource, verb) not in used
    ]
    print("required rights that this run did not use:", "; ".join(unused) or "none")
