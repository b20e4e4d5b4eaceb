"""Images as files: what is in them, and that the same image gives the same bytes."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from e2e.testbed.archives import Image, architecture, write_archive


def image(folder: Path, **more: Any) -> Image:
    program = folder / "program"
    program.write_bytes(b"runs")
    program.chmod(0o700)
    return Image(
        tag="federate.test/tried:1",
        files={
            "/opt/deep/program": program,
            "/opt/deep/root": program,
            "/etc/passwd": b"root:x:0:0\n",
        },
        links={"/bin/program": "/opt/deep/program"},
        entrypoint=["/bin/program"],
        environment=["VERSION=1"],
        **more,
    )


def unpack(archive: Path) -> tuple[dict[str, Any], dict[str, Any], list[tarfile.TarInfo], bytes]:
    """Return manifest, configuration, and the layer's entries and bytes."""
    with tarfile.open(archive) as outer:

        def read(name: str) -> bytes:
            stream = outer.extractfile(name)
            assert stream is not None
            return stream.read()

        (manifest,) = json.loads(read("manifest.json"))
        config = json.loads(read(manifest["Config"]))
        (name,) = manifest["Layers"]
        layer = read(name)
        stream = outer.extractfile(name)
        with tarfile.open(fileobj=stream) as inner:
            return manifest, config, inner.getmembers(), layer


def test_an_archive_holds_what_the_image_is_made_of(tmp_path: Path) -> None:
    """Configuration, tag and layer of an archive are those of its image, and fit together."""
    described = image(tmp_path, folders=["/var/lib/data"], setuid=["/opt/deep/root"])
    write_archive(described, tmp_path / "image.tar")
    manifest, config, entries, layer = unpack(tmp_path / "image.tar")
    assert manifest["RepoTags"] == ["federate.test/tried:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert config["config"] == {
        "Env": ["VERSION=1"],
        "WorkingDir": "/",
        "Entrypoint": ["/bin/program"],
    }
    assert (config["os"], config["architecture"]) == ("linux", architecture())
    by_name = {entry.name: entry for entry in entries}
    assert by_name["opt/deep/program"].mode == 0o755
    assert by_name["opt/deep/root"].mode == 0o4755
    assert by_name["etc/passwd"].mode == 0o644
    assert by_name["bin/program"].linkname == "/opt/deep/program"
    assert by_name["tmp"].mode == 0o1777
    assert by_name["var/lib/data"].isdir()


def test_a_folder_comes_before_what_is_in_it(tmp_path: Path) -> None:
    """Whoever unpacks a layer from front to back finds each folder made already."""
    write_archive(image(tmp_path), tmp_path / "image.tar")
    names = [entry.name for entry in unpack(tmp_path / "image.tar")[2]]
    for place, name in enumerate(names):
        parent = name.rpartition("/")[0]
        assert not parent or parent in names[:place], names


def test_the_same_image_gives_the_same_bytes(tmp_path: Path) -> None:
    """Who packs, when, and in which order the files were named leaves no trace."""
    one = image(tmp_path)
    other = Image(
        tag=one.tag,
        files=dict(reversed(list(one.files.items()))),
        links=one.links,
        entrypoint=one.entrypoint,
        environment=one.environment,
    )
    write_archive(one, tmp_path / "one.tar")
    (tmp_path / "program").touch()
    write_archive(other, tmp_path / "other.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "other.tar").read_bytes()


def test_a_failed_archive_leaves_nothing_behind(tmp_path: Path) -> None:
    """An archive whose file is missing is not there at all, not there in part."""
    broken = Image(tag="federate.test/tried:1", files={"/program": tmp_path / "missing"})
    try:
        write_archive(broken, tmp_path / "image.tar")
    except FileNotFoundError:
        pass
    else:
        raise AssertionError("the file is missing")
    assert not list(tmp_path.iterdir())
