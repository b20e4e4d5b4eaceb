"""Whom a Service and a NetworkPolicy select."""

from __future__ import annotations

import pytest

from federate.model.objects import JsonDict
from federate.services.selecting import label_selector_selects, policy_selects, service_selects

LABELS = {"app": "web", "tier": "front"}


@pytest.mark.parametrize(
    ("spec", "selects"),
    [
        ({"selector": {"app": "web"}}, True),
        ({"selector": {"app": "web", "tier": "back"}}, False),
        ({"selector": {}}, False),
        ({}, False),
        ({"selector": {"app": "web"}, "type": "ExternalName"}, False),
    ],
)
def test_a_service_selects_by_equality_and_never_all(spec: JsonDict, selects: bool) -> None:
    assert service_selects({"spec": spec}, LABELS) is selects


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "none", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Newer"}]}, True),
        (
            {
                "matchLabels": {"app": "web"},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["back"]}],
            },
            False,
        ),
    ],
)
def test_a_label_selector_means_what_it_means_to_an_api_server(
    selector: JsonDict, selects: bool
) -> None:
    assert label_selector_selects(selector, LABELS) is selects
    assert policy_selects({"spec": {"podSelector": selector}}, LABELS) is selects


def test_a_policy_without_a_selector_is_about_all() -> None:
    assert policy_selects({"spec": {}}, {})
