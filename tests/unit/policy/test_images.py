"""From where the target pulls, and what the hub calls it."""

from __future__ import annotations

import pytest

from federate.model.objects import JsonDict, copied
from federate.policy.images import (
    as_on_hub,
    images_in,
    is_image_prefix,
    parse_image,
    rewrite_images,
    rewritten,
    with_hub_images,
)
from federate.policy.rules import ImageRewrite

DIGEST = "sha256:" + "0" * 64
MIRRORS = (
    ImageRewrite(before="docker.io/library", after="registry.edge:5000/hub"),
    ImageRewrite(before="docker.io", after="registry.edge:5000/docker"),
    ImageRewrite(before="quay.io/acme/app", after="registry.edge:5000/app"),
)


@pytest.mark.parametrize(
    ("image", "name", "suffix"),
    [
        ("nginx", "docker.io/library/nginx", ""),
        ("nginx:1.27", "docker.io/library/nginx", ":1.27"),
        ("acme/app", "docker.io/acme/app", ""),
        ("docker.io/nginx", "docker.io/library/nginx", ""),
        ("index.docker.io/nginx:1", "docker.io/library/nginx", ":1"),
        ("registry-1.docker.io/a/b", "docker.io/a/b", ""),
        ("localhost/a", "localhost/a", ""),
        ("localhost:5000/a:b", "localhost:5000/a", ":b"),
        ("edge:5000/a", "edge:5000/a", ""),
        ("edge:5000/a/b:c", "edge:5000/a/b", ":c"),
        ("quay.io/a/b/c", "quay.io/a/b/c", ""),
        ("Registry/a", "Registry/a", ""),
        (f"nginx@{DIGEST}", "docker.io/library/nginx", f"@{DIGEST}"),
        (f"quay.io/a:1@{DIGEST}", "quay.io/a", f":1@{DIGEST}"),
    ],
)
def test_short_names_mean_what_a_runtime_makes_of_them(image: str, name: str, suffix: str) -> None:
    """Registry and folder are filled in; tag and digest are left as they are."""
    assert parse_image(image) == (name, suffix)


@pytest.mark.parametrize(
    ("image", "there"),
    [
        ("nginx", "registry.edge:5000/hub/nginx"),
        ("nginx:1.27", "registry.edge:5000/hub/nginx:1.27"),
        (f"docker.io/library/nginx@{DIGEST}", f"registry.edge:5000/hub/nginx@{DIGEST}"),
        ("acme/app:2", "registry.edge:5000/docker/acme/app:2"),
        ("quay.io/acme/app:2", "registry.edge:5000/app:2"),
        ("quay.io/acme/app/sub", "registry.edge:5000/app/sub"),
        ("quay.io/acme/application", "quay.io/acme/application"),
        ("ghcr.io/a/b", "ghcr.io/a/b"),
        ("docker.io.evil.com/library/x", "docker.io.evil.com/library/x"),
        ("libraryx/y", "registry.edge:5000/docker/libraryx/y"),
    ],
)
def test_the_first_rule_that_fits_moves_an_image(image: str, there: str) -> None:
    """By whole components; where none fits, the image stays as it is written."""
    assert rewritten(image, MIRRORS) == there
    assert rewritten(image, ()) == image


@pytest.mark.parametrize(
    ("there", "hub_image", "told"),
    [
        ("registry.edge:5000/hub/nginx:latest", "nginx", "docker.io/library/nginx:latest"),
        (f"registry.edge:5000/hub/nginx@{DIGEST}", "nginx", f"docker.io/library/nginx@{DIGEST}"),
        ("registry.edge:5000/app:1", "nginx", "quay.io/acme/app:1"),
        ("registry.edge:5000/hub/nginx", "registry.edge:5000/hub/nginx", None),
        (DIGEST, "nginx", None),
        ("ghcr.io/other", "nginx", None),
        ("", "nginx", None),
    ],
)
def test_what_the_kubelet_names_is_called_as_on_the_hub(
    there: str, hub_image: str, told: str | None
) -> None:
    """Also while the pod changes from another image; who names the mirror keeps its name."""
    assert as_on_hub(there, hub_image, MIRRORS) == (there if told is None else told)


def test_all_images_of_a_pod_are_moved() -> None:
    """Those of every kind of container, and of volumes."""
    spec: JsonDict = {
        "initContainers": [{"name": "i", "image": "busybox"}],
        "containers": [{"name": "c", "image": "nginx"}, {"name": "none"}],
        "ephemeralContainers": [{"name": "e", "image": "ghcr.io/a/b"}],
        "volumes": [{"name": "v", "image": {"reference": "acme/model:1"}}, {"name": "w"}],
    }
    assert dict(images_in(spec)) == {
        "spec.initContainers[i].image": "busybox",
        "spec.containers[c].image": "nginx",
        "spec.ephemeralContainers[e].image": "ghcr.io/a/b",
        "spec.volumes[v].image.reference": "acme/model:1",
    }
    moved = copied(spec)
    rewrite_images(moved, MIRRORS)
    assert [image for _, image in images_in(moved)] == [
        "registry.edge:5000/hub/busybox",
        "registry.edge:5000/hub/nginx",
        "ghcr.io/a/b",
        "registry.edge:5000/docker/acme/model:1",
    ]


def test_a_status_tells_the_hubs_names() -> None:
    """Name and id of what runs; what a runtime writes before the id stays."""
    spec = {
        "containers": [{"name": "c", "image": "nginx"}, {"name": "own", "image": "ghcr.io/a"}],
        "ephemeralContainers": [{"name": "e", "image": "busybox"}],
    }
    status: JsonDict = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "c",
                "image": "registry.edge:5000/hub/nginx:latest",
                "imageID": f"docker-pullable://registry.edge:5000/hub/nginx@{DIGEST}",
            },
            {"name": "own", "image": "ghcr.io/a", "imageID": DIGEST},
            {"name": "injected", "image": "registry.edge:5000/hub/proxy", "imageID": ""},
        ],
        "ephemeralContainerStatuses": [{"name": "e", "image": "registry.edge:5000/hub/busybox"}],
    }
    before = copied(status)
    told = with_hub_images(status, spec, MIRRORS)
    assert status == before
    assert told["containerStatuses"][0] == {
        "name": "c",
        "image": "docker.io/library/nginx:latest",
        "imageID": f"docker-pullable://docker.io/library/nginx@{DIGEST}",
    }
    assert told["containerStatuses"][1:] == before["containerStatuses"][1:]
    [debugger] = told["ephemeralContainerStatuses"]
    assert debugger["image"] == "docker.io/library/busybox"
    assert told["phase"] == "Running"
    assert with_hub_images(status, spec, ()) is status


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("docker.io", True),
        ("docker.io/library", True),
        ("registry.edge:5000/hub/a-b__c", True),
        ("localhost", True),
        ("localhost:5000/x", True),
        ("edge:5000", True),
        ("[::1]:5000/x", True),
        ("library", False),
        ("nginx/x", False),
        ("docker.io/", False),
        ("docker.io//x", False),
        ("docker.io/Library", False),
        ("docker.io/x:tag", False),
        ("https://docker.io", False),
        ("", False),
        ("docker.io/x@sha256:0", False),
    ],
)
def test_a_prefix_begins_with_a_registry(text: str, is_one: bool) -> None:
    """Without one nobody can tell what is meant; tags and digests are no part of it."""
    assert is_image_prefix(text) is is_one
