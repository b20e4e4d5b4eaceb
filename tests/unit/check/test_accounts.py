"""The account that mirrors run as: there, to be used, and what it says of itself (C31)."""

from __future__ import annotations

import pytest

from federate.check.accounts import account_of_mirrors, judge_accounts, say_accounts
from federate.check.findings import FindingId, Severity
from federate.companions.rules import CompanionRules, IdentityMode
from federate.model.objects import JsonDict

STRICT = {"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}}


def found(accounts: dict[str, JsonDict | None], name: str = "runner") -> list[FindingId]:
    return [finding.id for finding in judge_accounts(accounts, name)]


def test_mirrors_run_as_the_account_that_is_set_or_as_default() -> None:
    rules = CompanionRules(identity=IdentityMode.TARGET, target_account="runner")
    assert account_of_mirrors(rules) == "runner"
    assert account_of_mirrors(CompanionRules()) == "default"


def test_an_account_that_is_there_is_well() -> None:
    """And what it lets pods pull with is said."""
    pulls = {"imagePullSecrets": [{"name": "login"}]}
    accounts: dict[str, JsonDict | None] = {"a": {}, "b": pulls}
    assert found(accounts) == []
    assert say_accounts(accounts, "runner") == (
        "runner in 2 namespaces; pods without pull secrets use its own in b"
    )
    assert say_accounts({"a": {}}, "runner") == "runner in 1 namespace"
    assert say_accounts({}, "runner") == "runner: no namespace is in use yet"


def test_where_there_is_none_pods_wait() -> None:
    """Namespaces are named, not too many; the command to make one is there."""
    [finding] = judge_accounts(dict.fromkeys("abcde"), "runner")
    assert finding.id is FindingId.TARGET_ACCOUNT_MISSING
    assert finding.severity is Severity.WARN
    assert "runner in a, b, c and 2 more: pods there wait with ServiceAccountMissing" in (
        finding.what
    )
    assert finding.fix.startswith("kubectl create serviceaccount runner -n a")
    [default] = judge_accounts({"a": None}, "default")
    assert "controller manager" in default.fix


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        ({"metadata": {"deletionTimestamp": "x"}}, FindingId.TARGET_ACCOUNT_MISSING),
        (STRICT, FindingId.TARGET_ACCOUNT_RESTRICTED),
        ({"automountServiceAccountToken": False}, FindingId.TARGET_ACCOUNT_MOUNTED),
    ],
)
def test_what_an_account_says_of_itself_is_told(account: JsonDict, expected: FindingId) -> None:
    assert found({"a": account, "b": {}}) == [expected]


def test_the_default_account_is_not_overruled() -> None:
    """Mirrors that run as it never mount its token; what it restricts counts all the same."""
    assert found({"a": {"automountServiceAccountToken": False}}, "default") == []
    assert found({"a": STRICT}, "default") == [FindingId.TARGET_ACCOUNT_RESTRICTED]
