"""Stand-ins for the tests' images, and how they are packed."""

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from e2e.conformance.bundle import Layered, write_bundle
from e2e.conformance.images import (
    REGISTRY,
    read_image_list,
    repository_list,
    stand_in,
)
from e2e.testbed.archives import Image


def test_images_that_share_a_layer_keep_it_once(tmp_path: Path) -> None:
    """Each image has its own configuration; the archive has every layer a single time."""
    layers = {
        "low": Image(tag="", files={"/low": b"1"}),
        "high": Image(tag="", files={"/high": b"2"}),
    }
    images = [
        Layered(tag="a:1", layers=["low"], command=["sh"], user="1234"),
        Layered(tag="b:1", layers=["low", "high"], entrypoint=["/high"]),
    ]
    place = tmp_path / "bundle.tar"
    write_bundle(images, layers, place)
    with tarfile.open(place) as archive:
        names = archive.getnames()
        manifest = json.loads(read(archive, "manifest.json"))
        configs = [json.loads(read(archive, one["Config"])) for one in manifest]
    assert len([name for name in names if name.endswith("layer.tar")]) == 2
    assert [one["RepoTags"] for one in manifest] == [["a:1"], ["b:1"]]
    assert manifest[1]["Layers"][0] == manifest[0]["Layers"][0]
    assert configs[0]["config"]["Cmd"] == ["sh"] and configs[0]["config"]["User"] == "1234"
    assert configs[1]["config"]["Entrypoint"] == ["/high"]
    assert list(tmp_path.iterdir()) == [place]


def read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None
    return member.read()


def test_two_images_of_one_content_are_two(tmp_path: Path) -> None:
    """The digest of an image's configuration is its identity, and two tags would be one image."""
    layers = {"low": Image(tag="", files={})}
    images = [Layered(tag=tag, layers=["low"]) for tag in ("httpd:1", "httpd:2")]
    place = tmp_path / "bundle.tar"
    write_bundle(images, layers, place)
    with tarfile.open(place) as archive:
        manifest = json.loads(read(archive, "manifest.json"))
    assert manifest[0]["Config"] != manifest[1]["Config"]


def test_only_what_goes_by_our_name_is_made() -> None:
    """The suite lists what it would pull from elsewhere too."""
    listing = f"{REGISTRY}/busybox:1\nregistry.k8s.io/pause:3\n\n{REGISTRY}/agnhost:2\n"
    assert read_image_list(listing) == [f"{REGISTRY}/agnhost:2", f"{REGISTRY}/busybox:1"]
    assert REGISTRY in yaml.safe_load(repository_list()).values()


@pytest.mark.parametrize(
    "name",
    [
        "agnhost",
        "busybox",
        "jessie-dnsutils",
        "nonewprivs",
        "httpd",
        "nginx",
        "nonroot",
        "nautilus",
        "kitten",
    ],
)
def test_every_stand_in_has_its_layers(name: str) -> None:
    """A stand-in names layers that there are, and starts something."""
    image = stand_in(f"{REGISTRY}/{name}:1.0")
    assert image is not None
    assert image.entrypoint or image.command
    known = {"busybox", "shell", "tools", "who", "agnhost", "web", "nautilus", "kitten"}
    assert set(image.layers) <= known


def test_what_we_have_no_stand_in_for_is_left_out() -> None:
    """Specs that need it fail on both sides, and are not counted."""
    assert stand_in(f"{REGISTRY}/volume/nfs:1.4") is None
