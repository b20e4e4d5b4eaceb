"""Pods that print what they were given, and the objects that they name: all ways there are.

A row of the matrix is a pod; what its container is told by environment, arguments and files is
printed by `app show`. Nothing in here knows on which node it runs.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .manifests import APP, container
from .witness import Json

ACCOUNT = "robot"

GREETING = "hello, $(FIRST) $HOME"
"""Nothing of it is expanded: it is a value that comes from elsewhere."""

NASTY = 'one "two"\nthree\t\\four ünïcödé \u2028 $(FIRST) $$'
"""An annotation that has to be quoted in a file and escaped in the environment."""

LABELS: Mapping[str, str] = {"app": "matrix", "example.com/tier": "back"}
ANNOTATIONS: Mapping[str, str] = {
    "example.com/note": NASTY,
    "example.com/empty": "",
    "plain": "yes",
}


def encoded(content: bytes | str) -> str:
    """Write a value as the API has binary ones."""
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def configmap(name: str, data: Mapping[str, str], **more: object) -> Json:
    """Render a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": dict(data),
        **more,
    }


def secret(
    name: str, data: Mapping[str, bytes | str], *, kind: str = "Opaque", **more: object
) -> Json:
    """Render a Secret; `kind` is its type."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": kind,
        "data": {key: encoded(value) for key, value in data.items()},
        **more,
    }


def objects() -> Iterator[Json]:
    """Render what the rows name."""
    yield configmap(
        "settings",
        {
            "greeting": GREETING,
            "multi.conf": "a=1\nb=2\n\n",
            "EMPTY": "",
            "large": "0123456789abcdef" * 20_000,
        },
        binaryData={"blob": encoded(bytes(range(256)))},
    )
    yield configmap("few", {"COLOUR": "red", "dotted.name": "x"})
    yield configmap("fixed", {"rule": "never"}, immutable=True)
    yield secret(
        "login", {"user": "admin", "password": "s3cr$(FIRST)t\n", "key": bytes(range(256))}
    )
    yield secret("few", {"TOKEN": "abc", "COLOUR": "blue"})
    yield secret("sealed", {"rule": "never"}, immutable=True)
    yield secret("pair", {"tls.crt": "not checked", "tls.key": ""}, kind="kubernetes.io/tls")
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A pod of the matrix, less its node."""

    fields: Json
    labels: Json = field(default_factory=lambda: dict(LABELS))
    annotations: Json = field(default_factory=lambda: dict(ANNOTATIONS))


def rows() -> dict[str, Row]:
    """Render the pods by name."""
    return {
        "environment": Row(fields=environment()),
        "volumes": Row(fields=volumes()),
        "owned": Row(fields=owned()),
        "rooted": Row(fields=rooted()),
        "facts": Row(fields=facts()),
    }


def showing(*paths: str, **more: object) -> Json:
    """Render a container that prints itself and waits."""
    return container(command=[APP, "show"], args=[*paths, "wait"], **more)


def quiet(**fields: object) -> Json:
    """Render the fields of a spec without what every pod is given beside what it asks for."""
    return {"automountServiceAccountToken": False, "enableServiceLinks": False, **fields}


# -- environment -----------------------------------------------------------------------------------


def literal(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def fact(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def keyed(name: str, kind: str, of: str, key: str, **more: object) -> Json:
    """Render a variable whose value is one key's of an object."""
    ref = "secretKeyRef" if kind == "Secret" else "configMapKeyRef"
    return {"name": name, "valueFrom": {ref: {"name": of, "key": key, **more}}}


def resource(name: str, of: str, divisor: str) -> Json:
    ref = {"resource": of, "divisor": divisor}
    return {"name": name, "valueFrom": {"resourceFieldRef": ref}}


def variables() -> list[Json]:
    """Render variables of all kinds, which refer to each other both ways."""
    return [
        literal("FIRST", "one"),
        literal("SECOND", "$(FIRST) $(THIRD)"),
        literal("THIRD", "$(SECOND)"),
        literal("ESCAPED", "$$(FIRST) $$$(FIRST) $ $FIRST $(ABSENT) $(NAME)"),
        keyed("GREETING", "ConfigMap", "settings", "greeting"),
        keyed("PASSWORD", "Secret", "login", "password"),
        keyed("SEALED", "Secret", "sealed", "rule"),
        keyed("NO_OBJECT", "ConfigMap", "absent", "key", optional=True),
        keyed("NO_SECRET", "Secret", "absent", "key", optional=True),
        keyed("NO_KEY", "Secret", "login", "absent", optional=True),
        literal("QUOTED", "$(GREETING)|$(PASSWORD)|$(FROM_COLOUR)|$(NO_KEY)"),
        fact("NAME", "metadata.name"),
        fact("NAMESPACE", "metadata.namespace"),
        fact("UID", "metadata.uid"),
        fact("NODE", "spec.nodeName"),
        fact("ACCOUNT", "spec.serviceAccountName"),
        fact("ADDRESS", "status.podIP"),
        fact("ADDRESSES", "status.podIPs"),
        fact("TIER", "metadata.labels['example.com/tier']"),
        fact("NO_LABEL", "metadata.labels['absent']"),
        fact("NOTE", "metadata.annotations['example.com/note']"),
        literal("FULL_NAME", "$(NAMESPACE)/$(NAME) on $(NODE) as $(ACCOUNT): $(NOTE)"),
        resource("CPU", "limits.cpu", "1m"),
        resource("MEMORY", "requests.memory", "1Mi"),
    ]


def sources() -> list[Json]:
    """Render where whole sets of variables come from; later ones win."""
    return [
        {"configMapRef": {"name": "few"}},
        {"secretRef": {"name": "few"}},
        {"configMapRef": {"name": "few"}, "prefix": "FROM_"},
        {"secretRef": {"name": "few"}, "prefix": "SECRET_"},
        {"configMapRef": {"name": "absent", "optional": True}},
        {"secretRef": {"name": "absent", "optional": True}, "prefix": "NO_"},
    ]


def environment() -> Json:
    told: Json = {
        "env": variables(),
        "envFrom": sources(),
        "resources": {
            "limits": {"cpu": "500m", "memory": "64Mi"},
            "requests": {"cpu": "10m", "memory": "16Mi"},
        },
    }
    first = container(name="first", command=[APP, "show", "$(FULL_NAME)"], **told)
    arguments = ["$(SECOND)", "$$(FIRST)", "$(NAME) $(TIER)", "$(GREETING)"]
    return quiet(
        serviceAccountName=ACCOUNT,
        initContainers=[first],
        containers=[showing(*arguments, **told)],
    )


# -- files -----------------------------------------------------------------------------------------


def from_configmap(of: str = "settings", **more: object) -> Json:
    return {"configMap": {"name": of, **more}}


def from_secret(of: str = "login", **more: object) -> Json:
    return {"secret": {"secretName": of, **more}}


def item(key: str, path: str, **more: object) -> Json:
    return {"key": key, "path": path, **more}


def file_of(path: str, field_path: str, **more: object) -> Json:
    return {"path": path, "fieldRef": {"fieldPath": field_path}, **more}


def projected(**more: object) -> Json:
    """Render a volume of several sources."""
    return {
        "projected": {
            "sources": [
                {"configMap": {"name": "settings", "items": [item("multi.conf", "a/multi")]}},
                {"secret": {"name": "login", "items": [item("user", "b/user", mode=0o400)]}},
                {"secret": {"name": "few"}},
                {"configMap": {"name": "absent", "optional": True}},
                {"downwardAPI": {"items": [file_of("c/name", "metadata.name"),
                                           file_of("c/labels", "metadata.labels")]}},
            ],
            **more,
        }
    }  # fmt: skip


FOLDERS: Mapping[str, Json] = {
    "settings": from_configmap(),
    "chosen": from_configmap(
        items=[item("greeting", "deep/er/greeting", mode=0o640), item("blob", "blob")],
        defaultMode=0o400,
    ),
    "login": from_secret(defaultMode=0o440),
    "one": from_secret(items=[item("password", "word", mode=0o711)]),
    "typed": from_secret("pair"),
    "fixed": from_configmap("fixed"),
    "sealed": from_secret("sealed"),
    "nothing": from_configmap("absent", optional=True),
    "no-secret": from_secret("absent", optional=True),
    "no-key": from_configmap(items=[item("absent", "absent")], optional=True),
    "mixed": projected(defaultMode=0o444),
}
"""Volumes by name; each is mounted whole."""


def mounted(folders: Mapping[str, Json]) -> tuple[list[Json], list[Json]]:
    """Render volumes, and the mounts that have them below /given."""
    volumes = [{"name": name, **source} for name, source in folders.items()]
    mounts = [{"name": name, "mountPath": f"/given/{name}"} for name in folders]
    return volumes, mounts


def volumes() -> Json:
    volumes, mounts = mounted(FOLDERS)
    single = [
        {"name": "settings", "mountPath": "/single/greeting", "subPath": "greeting"},
        {"name": "login", "mountPath": "/single/password", "subPath": "password", "readOnly": True},
        {"name": "chosen", "mountPath": "/single/deep", "subPathExpr": "$(FOLDER)"},
        {"name": "fixed", "mountPath": "/etc/fixed", "readOnly": True},
    ]
    shown = showing(
        *("/given", "/single", "/etc/fixed"),
        env=[literal("FOLDER", "deep/er")],
        volumeMounts=[*mounts, *single],
    )
    return quiet(volumes=volumes, containers=[shown])


def owned() -> Json:
    """A pod that is not root's, and whose volumes are its group's."""
    user = {
        "runAsUser": 1234,
        "runAsGroup": 3000,
        "fsGroup": 2000,
        "supplementalGroups": [4000],
        "runAsNonRoot": True,
    }
    return {**volumes(), "securityContext": user}


def rooted() -> Json:
    """The same of root's group alone, and one container of another user."""
    spec = volumes()
    other = {**spec["containers"][0], "name": "other", "securityContext": {"runAsUser": 65534}}
    return {
        **spec,
        "containers": [spec["containers"][0], other],
        "securityContext": {"fsGroup": 77},
    }


def facts() -> Json:
    """The downward API in files."""
    files = [
        file_of("name", "metadata.name"),
        file_of("namespace", "metadata.namespace"),
        file_of("uid", "metadata.uid"),
        file_of("labels", "metadata.labels", mode=0o600),
        file_of("annotations", "metadata.annotations"),
        file_of("tier", "metadata.labels['example.com/tier']"),
        file_of("note", "metadata.annotations['example.com/note']"),
        file_of("deep/absent", "metadata.labels['absent']"),
        {
            "path": "cpu",
            "resourceFieldRef": {
                "containerName": "main", "resource": "limits.cpu", "divisor": "1m",
            },
        },
    ]  # fmt: skip
    volume = {"name": "facts", "downwardAPI": {"items": files, "defaultMode": 0o444}}
    shown = showing(
        "/given",
        volumeMounts=[{"name": "facts", "mountPath": "/given"}],
        resources={"limits": {"cpu": "250m"}, "requests": {"cpu": "10m"}},
    )
    return quiet(volumes=[volume], containers=[shown])
