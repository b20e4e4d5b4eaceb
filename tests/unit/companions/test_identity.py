"""As whom a pod speaks: what it is issued, and how its mirror is dressed."""

from __future__ import annotations

from typing import Any

import pytest

from federate.companions.identity import (
    IdentityRules,
    TokenAsk,
    account_of,
    has_links,
    issues_for,
    token_asks,
    token_mode,
    token_request,
    with_identity,
)
from federate.companions.issued import place_of, services_key, token_key
from federate.companions.references import unsupported_of, wants_of
from federate.companions.rewrite import renaming, with_companion_names
from federate.companions.rules import IdentityMode
from federate.model.objects import JsonDict, spec_of
from tests.support.issuestage import RULES, TARGET_NAMESPACE, api_access, token_volume
from tests.support.views import SCOPE, hub_pod

NONE = IdentityRules(scope=SCOPE)
TARGET = IdentityRules(scope=SCOPE, mode=IdentityMode.TARGET, target_account="runner")


def pod(*volumes: JsonDict, **spec: Any) -> JsonDict:
    own = {"automountServiceAccountToken": False, "serviceAccountName": "robot", **spec}
    return hub_pod().with_uid("uid-1").with_spec(volumes=list(volumes), **own).build()


def dressed(hub: JsonDict, rules: IdentityRules = RULES) -> JsonDict:
    return with_identity(spec_of(hub), hub, rules)


# -- what is asked for -----------------------------------------------------------------------------


def test_the_year_that_admission_asks_for_is_an_hour() -> None:
    """Exactly 3607 s would be stretched to a year."""
    assert token_asks(spec_of(pod(api_access()))) == (TokenAsk("", 3600),)


def test_each_wish_is_asked_for_once() -> None:
    """Volumes that ask alike show the same token, as a kubelet's cache has it; others their own."""
    found = token_asks(
        spec_of(
            pod(
                api_access(),
                token_volume("a", audience="vault", expirationSeconds=600),
                token_volume("b", audience="vault", expirationSeconds=600),
                token_volume("c", audience="vault"),
                token_volume("d"),
                {"name": "e", "emptyDir": {}},
            )
        )
    )
    assert found == (TokenAsk("", 3600), TokenAsk("vault", 600), TokenAsk("vault", 3600))
    assert len({ask.value_key for ask in found}) == 3


def test_a_token_dies_with_the_hub_pod() -> None:
    """The request names pod and uid; without an audience the API server's own counts."""
    hub = pod(api_access())
    assert token_request(TokenAsk("vault", 600), hub) == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": ["vault"],
            "expirationSeconds": 600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "uid-1"},
        },
    }
    assert "audiences" not in token_request(TokenAsk("", 3600), hub)["spec"]


def test_the_account_is_the_hub_pods() -> None:
    """A pod without one is of the default account."""
    assert account_of(pod()) == "robot"
    assert account_of(hub_pod().build()) == "default"


def test_what_a_pod_is_issued() -> None:
    """Tokens where a volume asks for some, and the news of Services always; nothing once over."""
    with_token, without = pod(api_access()), pod(enableServiceLinks=False)
    services = services_key(TARGET_NAMESPACE, "default", has_links=True)
    tokens = token_key(with_token, TARGET_NAMESPACE)
    assert issues_for(RULES, with_token, TARGET_NAMESPACE) == (tokens, services)
    assert has_links(with_token) and not has_links(without)
    assert issues_for(RULES, without, TARGET_NAMESPACE) == (
        services_key(TARGET_NAMESPACE, "default", has_links=False),
    )
    over = {**with_token, "status": {"phase": "Succeeded"}}
    assert issues_for(RULES, over, TARGET_NAMESPACE) == ()
    for rules in (NONE, TARGET):
        assert issues_for(rules, with_token, TARGET_NAMESPACE) == ()


def test_what_travels_in_each_mode() -> None:
    """`hub` brings admission's volume, `hub` and `target` what users ask for, `none` nothing."""
    assert (NONE.brings_tokens, NONE.travelling_tokens) == (False, False)
    assert (TARGET.brings_tokens, TARGET.travelling_tokens) == (False, True)
    assert (RULES.brings_tokens, RULES.travelling_tokens) == (True, True)


@pytest.mark.parametrize("rules", [NONE, TARGET, RULES])
def test_tokens_are_refused_where_nobody_brings_them(rules: IdentityRules) -> None:
    """The CA of the hub comes along where its tokens do."""
    hub = pod(api_access(), token_volume())
    refused = unsupported_of(
        spec_of(hub),
        brings_tokens=rules.brings_tokens,
        travelling_tokens=rules.travelling_tokens,
    )
    assert bool(refused) is (rules is NONE)
    wants = wants_of(hub, TARGET_NAMESPACE, brings_tokens=rules.brings_tokens)
    assert [key.name for key in wants] == (["kube-root-ca.crt"] if rules is RULES else [])


# -- the mirror ------------------------------------------------------------------------------------


def test_the_volume_of_admission_is_the_same_path_by_path() -> None:
    """Token, CA and namespace are where a kubelet of the hub puts them, in the same order."""
    hub = pod(api_access())
    renamed = with_companion_names(spec_of(hub), renaming(SCOPE, "default"))
    [volume] = with_identity(renamed, hub, RULES)["volumes"]
    token, ca, namespace = volume["projected"]["sources"]
    secret = place_of(SCOPE, token_key(hub, "")).name
    key = TokenAsk("", 3600).value_key
    assert token == {"secret": {"name": secret, "items": [{"key": key, "path": "token"}]}}
    assert ca["configMap"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    assert ca["configMap"]["name"].startswith("kube-root-ca-crt-")
    assert namespace["downwardAPI"]["items"][0]["path"] == "namespace"
    assert volume["projected"]["defaultMode"] == 0o644


def test_a_users_own_token_is_where_it_is_asked_for() -> None:
    """Audience and life choose the value, the path stays."""
    hub = pod(token_volume(audience="vault", expirationSeconds=7200, path="deep/vault.jwt"))
    [volume] = dressed(hub)["volumes"]
    [item] = volume["projected"]["sources"][0]["secret"]["items"]
    assert item == {"key": TokenAsk("vault", 7200).value_key, "path": "deep/vault.jwt"}


def test_containers_are_told_of_the_hub_first() -> None:
    """As the first source of the environment: whatever else is set comes before it in rank."""
    hub = pod(enableServiceLinks=False)
    told = place_of(SCOPE, services_key("", "default", has_links=False)).name
    [container] = dressed(hub)["containers"]
    assert container["envFrom"][0] == {"configMapRef": {"name": told}}
    part = with_identity({"ephemeralContainers": [{"name": "debug"}]}, hub, RULES)
    assert part == {
        "ephemeralContainers": [{"name": "debug", "envFrom": [{"configMapRef": {"name": told}}]}]
    }


def test_as_nobody_nothing_is_put_in() -> None:
    """What is left of the spec is returned as it is."""
    hub = pod()
    assert dressed(hub, NONE) == spec_of(hub)
    assert NONE.dress(spec_of(hub), hub) is not spec_of(hub)


@pytest.mark.parametrize("mounts", [True, False])
def test_as_an_account_of_the_target(mounts: bool) -> None:
    """Its token is mounted where the hub's would have been; others are the target's to give."""
    hub = pod(*([api_access()] if mounts else []), token_volume(audience="vault"))
    spec = {**spec_of(hub), "volumes": [token_volume(audience="vault")]}
    of_target = with_identity(spec, hub, TARGET)
    assert of_target["serviceAccountName"] == "runner"
    assert of_target["automountServiceAccountToken"] is mounts
    assert of_target["volumes"] == [token_volume(audience="vault")]
    part = with_identity({"ephemeralContainers": [{"name": "debug"}]}, hub, TARGET)
    assert part == {"ephemeralContainers": [{"name": "debug"}]}


def test_nothing_given_is_changed() -> None:
    """Specs from a store are shared."""
    hub = pod(api_access())
    before = repr(hub)
    dressed(hub)
    dressed(hub, TARGET)
    assert repr(hub) == before


# -- modes -----------------------------------------------------------------------------------------


def spec_as(pod_user: int | None, *users: int | None, group: int | None = None) -> JsonDict:
    def context(**fields: int | None) -> JsonDict:
        return {"securityContext": {k: v for k, v in fields.items() if v is not None}}

    first, *others = [context(runAsUser=user) for user in users or (None,)]
    return {
        **context(runAsUser=pod_user, fsGroup=group),
        "containers": [first],
        "initContainers": others,
    }


@pytest.mark.parametrize(
    ("spec", "default", "mode"),
    [
        (spec_as(None), 0o644, None),
        (spec_as(None), 0o400, None),
        (spec_as(1000), 0o644, None),
        (spec_as(1000), 0o400, 0o444),
        (spec_as(1000), 0o600, 0o644),
        (spec_as(None, 1000, 1000), 0o400, 0o444),
        (spec_as(None, 1000, 2000), 0o400, None),
        (spec_as(1000, None, 2000), 0o400, None),
        (spec_as(None, 1000, None), 0o400, None),
        (spec_as(0), 0o644, 0o600),
        (spec_as(None, group=2000), 0o644, 0o600),
        (spec_as(1000, group=2000), 0o644, 0o600),
        ({"containers": [{}]}, 0o644, None),
    ],
)
def test_who_can_read_a_token_on_the_hub_can_here(
    spec: JsonDict, default: int, mode: int | None
) -> None:
    """As a kubelet's rules, as far as files of a Secret go: they are root's."""
    assert token_mode(spec, default) == mode


def test_the_mode_is_the_files_own() -> None:
    """Its neighbours keep theirs."""
    hub = pod(api_access(), securityContext={"fsGroup": 2000})
    [volume] = dressed(hub)["volumes"]
    [item] = volume["projected"]["sources"][0]["secret"]["items"]
    assert item["mode"] == 0o600
