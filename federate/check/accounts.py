"""Judge the service account of the target that mirrors run as (C31). Pure.

Who may create pods in a namespace may let them run as any account there: no right says otherwise.
What an account says of itself does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from federate.check.findings import Finding, FindingId
from federate.companions.rules import CompanionRules, IdentityMode
from federate.model.objects import JsonObject, annotations_of, is_terminating

DEFAULT_ACCOUNT = "default"

ONLY_ITS_SECRETS = "kubernetes.io/enforce-mountable-secrets"
"""Annotation of accounts: admission lets their pods name no Secret but those the account lists.
https://kubernetes.io/docs/concepts/security/service-accounts/#enforce-mountable-secrets"""

PULL_SECRETS = "imagePullSecrets"

SHOWN = 3
"""Namespaces that are named; of the others there is the number."""

Accounts: TypeAlias = Mapping[str, JsonObject | None]
"""By namespace the account of one name; None where there is none."""


def account_of_mirrors(rules: CompanionRules) -> str:
    """Return the name of the account that mirrors run as."""
    return rules.target_account if rules.identity is IdentityMode.TARGET else DEFAULT_ACCOUNT


def say_accounts(accounts: Accounts, name: str) -> str:
    """Say where the account is, and where it helps pods pull."""
    if not accounts:
        return f"{name}: no namespace is in use yet"
    pulling = [space for space, one in sorted(accounts.items()) if (one or {}).get(PULL_SECRETS)]
    pulls = f"; pods without pull secrets use its own in {_listed(pulling)}" if pulling else ""
    return f"{name} in {_count(len(accounts))}{pulls}"


def judge_accounts(accounts: Accounts, name: str) -> tuple[Finding, ...]:
    """Find the namespaces where mirrors cannot run as that account, or otherwise than it says."""
    missing = [space for space, account in sorted(accounts.items()) if account is None]
    there = {space: one for space, one in sorted(accounts.items()) if one is not None}
    return (
        *_missing(missing, name),
        *_ending([space for space, one in there.items() if is_terminating(one)], name),
        *_strict([space for space, one in there.items() if _is_strict(one)], name),
        *_overruled([space for space, one in there.items() if _mounts_nothing(one)], name),
    )


def _is_strict(account: JsonObject) -> bool:
    return annotations_of(account).get(ONLY_ITS_SECRETS) == "true"


def _mounts_nothing(account: JsonObject) -> bool:
    return account.get("automountServiceAccountToken") is False


def _missing(namespaces: Sequence[str], name: str) -> Iterator[Finding]:
    if not namespaces:
        return
    fix = f"kubectl create serviceaccount {name} -n {namespaces[0]}, and what it may do there"
    if name == DEFAULT_ACCOUNT:
        fix = "see why the target's controller manager does not make it"
    yield Finding(
        id=FindingId.TARGET_ACCOUNT_MISSING,
        what=f"the target has no service account {name} in {_listed(namespaces)}: pods there wait "
        "with ServiceAccountMissing",
        fix=fix,
    )


def _ending(namespaces: Sequence[str], name: str) -> Iterator[Finding]:
    if namespaces:
        yield Finding(
            id=FindingId.TARGET_ACCOUNT_MISSING,
            what=f"service account {name} is being deleted in {_listed(namespaces)}",
            fix="see which finalizer keeps it, and create it anew",
        )


def _strict(namespaces: Sequence[str], name: str) -> Iterator[Finding]:
    if namespaces:
        yield Finding(
            id=FindingId.TARGET_ACCOUNT_RESTRICTED,
            what=f"service account {name} in {_listed(namespaces)} lets pods name no Secrets but "
            "those it lists, and it lists none that federate brings: pods that need one are "
            "refused there",
            fix=f"kubectl annotate serviceaccount {name} -n {namespaces[0]} {ONLY_ITS_SECRETS}-",
        )


def _overruled(namespaces: Sequence[str], name: str) -> Iterator[Finding]:
    # The others never mount a token of the target.
    if namespaces and name != DEFAULT_ACCOUNT:
        yield Finding(
            id=FindingId.TARGET_ACCOUNT_MOUNTED,
            what=f"service account {name} in {_listed(namespaces)} says "
            "automountServiceAccountToken: false, but pods that mount a token on the hub mount "
            "one of it there",
            fix="intended? Then nothing. Else set automountServiceAccountToken: false in the hub's "
            "pods or their accounts, or identity: none",
        )


def _count(number: int) -> str:
    return "1 namespace" if number == 1 else f"{number} namespaces"


def _listed(namespaces: Sequence[str]) -> str:
    more = len(namespaces) - SHOWN
    return ", ".join(namespaces[:SHOWN]) + (f" and {more} more" if more > 0 else "")
