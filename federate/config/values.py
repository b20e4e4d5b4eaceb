"""What a single value may be: node names, labels, quantities, addresses.

Each function returns the value, or raises a ValueError that says what was expected. Who asks knows
where the value stood and what it was.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path

from federate.model.marks import PREFIX
from federate.model.naming import NAME_LIMIT
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TAINT_KEY
from federate.model.quantities import PODS, parse_quantity
from federate.policy.images import is_image_prefix

NODE_NAME_LIMIT = 63
"""A node's name is the value of its `kubernetes.io/hostname` label, which pods select by."""

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "console", "json")
DEFAULT_LISTEN = "127.0.0.1:8080"

LATEST_RENEWAL = Decimal("0.8")
RENEWAL_EXPECTED = "expected a number above 0 and at most 0.8, as in 0.5"

SHOWN_LIMIT = 80
"""A value longer than this is cut in messages."""

PATH_LIMIT = 1024
FILE_NAME_LIMIT = 255
"""Bytes of a name between two slashes, as Linux has it."""
CONTEXT_LIMIT = 512
PROVIDER_ID_LIMIT = 512

STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage", PODS)
"""What a node has without a domain in the name, huge pages apart; pods cannot ask for others."""

OWN_LABELS = frozenset(
    {
        NODE_TYPE_LABEL,
        "kubernetes.io/hostname",
        "kubernetes.io/role",
        "node.kubernetes.io/exclude-disruption",
        "node.kubernetes.io/exclude-from-external-load-balancers",
    }
)
"""Labels of the Node that selectors and taints rely on: the user cannot give them other values."""

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NODE_NAME = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_NAMESPACE = re.compile(_DNS_LABEL)
_QUALIFIED = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"({_DNS_LABEL}(\.{_DNS_LABEL})*/)?{_QUALIFIED}")
_LABEL_VALUE = re.compile(rf"({_QUALIFIED})?")
_HOST_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_HOST_LABEL}(\.{_HOST_LABEL})*\.?")
_PROVIDER_ID = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[!-~]+")
_CONTENT_BEGINS = re.compile(
    r"""\s*([^=\s]{1,64}=)?  # an option's NAME=
    (\{|[A-Za-z-]+:\s|apiVersion:|YXBpVmVyc2lvb|-----BEGIN|LS0tLS1CRUdJTi|eyJ)""",
    re.VERBOSE,
)
"""Of a kubeconfig, a certificate or key, a token; each also in base64."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_RUN = re.compile(r"[A-Za-z0-9+=]{40,}")
_NAME_PATTERN = re.compile(r"[a-z0-9*?]([-a-z0-9*?]{0,61}[a-z0-9*?])?")
_WORD = re.compile(r"[!-~]{1,253}")
_OWN_TAINT_PREFIX = "node.kubernetes.io/"

_SEARCH_DOMAIN = re.compile(
    r"[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)*\.?"
)
_DNS_WORD = re.compile(r"[-a-zA-Z0-9_]+")


def quoted(text: str) -> str:
    """Quote a value for a message, on one line whatever it holds."""
    return json.dumps(text, ensure_ascii=False)


def shown(text: str) -> str:
    """Say what a text was: quoted and never much of it, and nothing of what may be a secret."""
    if looks_like_content(text):
        lines = len(text.strip().splitlines())
        return f"a text of {lines} lines" if lines > 1 else f"a text of {len(text)} characters"
    return quoted(text if len(text) <= SHOWN_LIMIT else f"{text[: SHOWN_LIMIT - 1]}…")


def shown_path(text: str) -> str:
    """Say a path in full, where it may be one: its end tells most."""
    return shown(text) if looks_like_content(text) else quoted(text)


def looks_like_content(text: str) -> bool:
    """Tell whether a text is rather what stands in a file: a kubeconfig, a key, a token."""
    if "\n" in text.strip() or len(text) > PATH_LIMIT or _CONTENT_BEGINS.match(text):
        return True
    return any(map(_is_mixed, _RUN.findall(text)))


def _is_mixed(run: str) -> bool:
    """Tell base64 from a long word and from a digest in hex: it has letters of both cases."""
    return all(re.search(kind, run) for kind in ("[A-Z]", "[a-z]", "[0-9]"))


def kubeconfig_path(text: str) -> str:
    """Return the path of a kubeconfig file, which need not be there."""
    if not text:
        raise ValueError("expected the path of a kubeconfig file")
    is_no_path = len(text) > PATH_LIMIT or bool(_CONTROLS.search(text))
    if is_no_path or looks_like_content(text) or _longest_name(text) > FILE_NAME_LIMIT:
        raise ValueError("expected the path of a kubeconfig file, not its content")
    expanded(text)
    return text


def file_path(text: str) -> str:
    """Return the path of a PEM file, which need not be there."""
    if not text:
        raise ValueError("expected the path of a PEM file")
    is_no_path = len(text) > PATH_LIMIT or bool(_CONTROLS.search(text))
    if is_no_path or looks_like_content(text) or _longest_name(text) > FILE_NAME_LIMIT:
        raise ValueError("expected the path of a PEM file, not its content")
    expanded(text)
    return text


def _longest_name(text: str) -> int:
    """Count the bytes of the longest name in a path."""
    return max(len(name.encode(errors="surrogatepass")) for name in text.split("/"))


def expanded(text: str) -> Path:
    """Return a path with `~` and `~user` replaced."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError("has a ~ that is no home folder here; expected a whole path") from None


def is_file(path: Path) -> bool:
    """Tell whether there is such a file, whatever the text is that it was made of."""
    try:
        return path.is_file()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise ValueError(f"cannot be looked at: {error.strerror}") from None


def context_name(text: str) -> str:
    """Return the name of a kubeconfig's context."""
    if not text or len(text) > CONTEXT_LIMIT or _CONTROLS.search(text):
        raise ValueError("expected the name of a context")
    return text


def node_name(text: str) -> str:
    """Return the name of a virtual node."""
    if len(text) > NODE_NAME_LIMIT or not _NODE_NAME.fullmatch(text):
        raise ValueError(
            f"expected at most {NODE_NAME_LIMIT} lower-case letters, digits, '-' and '.', "
            "beginning and ending with a letter or digit"
        )
    if text == "hub":
        raise ValueError('expected another name, "hub" is what the hub is called')
    return text


def namespace_name(text: str) -> str:
    """Return the name of a namespace."""
    if len(text) > NAME_LIMIT or not _NAMESPACE.fullmatch(text):
        raise ValueError(
            f"expected the name of a namespace: at most {NAME_LIMIT} lower-case letters, digits "
            "and '-', beginning and ending with a letter or digit"
        )
    return text


def object_name(text: str) -> str:
    """Return the name of an object that is a DNS subdomain."""
    if len(text) > 253 or not _NODE_NAME.fullmatch(text):
        raise ValueError(
            "expected the name of an object: at most 253 lower-case letters, digits, '-' and '.', "
            "beginning and ending with a letter or digit"
        )
    return text


def object_name_or_none(text: str) -> str:
    """Return the name of an object, or the empty text."""
    return object_name(text) if text else text


def is_qualified_name(text: str) -> bool:
    """Tell whether it may be the key of a label or a taint, or the name of a resource."""
    prefix, slash, _name = text.rpartition("/")
    return bool(_LABEL_KEY.fullmatch(text)) and not (slash and len(prefix) > 253)


def qualified_name(text: str) -> str:
    """Return the key of a label or a taint, or the name of a resource."""
    if not is_qualified_name(text):
        raise ValueError("expected a key, as in zone or example.com/zone")
    return text


def listed_key(text: str) -> str:
    """Return a key, or a prefix of keys that ends in a slash."""
    if not is_qualified_name(f"{text}x" if text.endswith("/") else text):
        raise ValueError("expected a key, or a prefix with a slash, as in app or example.com/")
    return text


def name_pattern(text: str) -> str:
    """Return a name in which `*` and `?` stand for others."""
    if not _NAME_PATTERN.fullmatch(text):
        raise ValueError("expected a name, in which * and ? stand for others, as in team-*")
    return text


def word(text: str) -> str:
    """Return a name without blanks."""
    if not _WORD.fullmatch(text):
        raise ValueError("expected a name without blanks")
    return text


def image_prefix(text: str) -> str:
    """Return a registry, with or without a path."""
    if not is_image_prefix(text):
        raise ValueError(
            "expected a registry with its host, and a path or none, as in docker.io/library"
        )
    return text


def label_value(text: str) -> str:
    """Return the value of a label."""
    if not _LABEL_VALUE.fullmatch(text):
        raise ValueError(
            "expected at most 63 letters, digits, '-', '_' and '.', beginning and ending with a "
            "letter or digit"
        )
    return text


def own_label_key(text: str) -> str:
    """Return the key of a label that the user may set on the Node."""
    if text in OWN_LABELS or text.startswith(PREFIX):
        raise ValueError(f"{text} is set by federate; expected another key")
    return qualified_name(text)


def taint_key(text: str) -> str:
    """Return the key of a taint that the user may set on the Node."""
    if text == VIRTUAL_NODE_TAINT_KEY:
        raise ValueError(f"{text} is set by federate: by taintValue and taintEffect")
    if text.startswith(_OWN_TAINT_PREFIX):
        raise ValueError("taints of that prefix come from Kubernetes itself; expected another key")
    return qualified_name(text)


def provider_id(text: str) -> str:
    """Return a provider id."""
    if len(text) > PROVIDER_ID_LIMIT or not _PROVIDER_ID.fullmatch(text):
        raise ValueError("expected PROVIDER://ID, as in federate://edge")
    return text


def hub_identity(text: str) -> str:
    """Return what a hub is called in marks: the value of a label."""
    if not text or not _LABEL_VALUE.fullmatch(text):
        raise ValueError(
            "expected 1 to 63 letters, digits, '-', '_' and '.', beginning and ending with a "
            "letter or digit"
        )
    return text


def holder(text: str) -> str:
    """Return the name of a process in leader leases."""
    if not text.strip():
        raise ValueError("expected a name unique to this process")
    return text


def quantity(text: str) -> str:
    """Return a quantity that is not negative."""
    try:
        amount = parse_quantity(text)
    except ValueError as error:
        raise ValueError("expected a quantity, as in 4, 500m or 200Gi") from error
    if amount < 0:
        raise ValueError("expected 0 or more")
    return text


def resource_name(text: str) -> str:
    """Return the name of a resource: a standard one, or an extended one with its domain."""
    qualified_name(text)
    if "/" not in text and text not in STANDARD_RESOURCES and not text.startswith("hugepages-"):
        known = ", ".join(STANDARD_RESOURCES)
        raise ValueError(f"expected {known}, hugepages-SIZE or DOMAIN/NAME")
    return text


def whole_pods(found: Mapping[str, str]) -> Mapping[str, str]:
    """Return quantities in which pods, where they are named, are a whole number."""
    pods = parse_quantity(found.get(PODS, "0"))
    if pods != pods.to_integral_value():
        raise ValueError("expected a whole number of pods")
    return found


def share(text: str) -> Decimal:
    """Return a part of a whole."""
    try:
        part = Decimal(text)
    except InvalidOperation as error:
        raise ValueError("expected a number above 0 and at most 1, as in 0.5") from error
    if not part.is_finite() or not 0 < part <= 1:
        raise ValueError("expected a number above 0 and at most 1, as in 0.5")
    return part


def renewal(text: str) -> Decimal:
    """Return the part of a token's life after which it is renewed."""
    try:
        part = share(text)
    except ValueError:
        raise ValueError(RENEWAL_EXPECTED) from None
    if part > LATEST_RENEWAL:
        raise ValueError(RENEWAL_EXPECTED)
    return part


def host_and_port(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `[IPv6]:PORT` or `:PORT` (every address)."""
    host, colon, digits = text.rpartition(":")
    port = int(digits) if re.fullmatch(r"[0-9]{1,5}", digits) else -1
    if not colon or not 0 <= port <= 65535:
        raise ValueError("expected HOST:PORT with a port from 0 (any free one) to 65535")
    if host.startswith("[") and host.endswith("]"):
        return address(host[1:-1]), port
    if not host:
        return "0.0.0.0", port  # noqa: S104 - the user asked for every address
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise ValueError(f"{shown(host)} is no host; write IPv6 as [::1]:8080")
    return host, port


def reached_host_and_port(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT` or `[IPv6]:PORT`, as others reach it."""
    expected = "expected HOST:PORT as others reach it, as in 10.0.0.5:6443"
    try:
        host, port = host_and_port(text)
    except ValueError:
        raise ValueError(expected) from None
    if port == 0 or _is_unspecified(host):
        raise ValueError(expected)
    return host, port


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False


def port(number: int) -> int:
    """Return the number of a port."""
    if not 0 <= number <= 65535:
        raise ValueError("expected a port from 0 (any free one) to 65535")
    return number


def listen(text: str) -> str:
    """Return an address to listen on."""
    host_and_port(text)
    return text


def hub_address(text: str) -> str:
    """Return an address at which others reach the hub."""
    reached_host_and_port(text)
    return text


def node_address(text: str) -> str:
    """Return an address that other hosts could reach."""
    found = address(text)
    if ipaddress.ip_address(found).is_unspecified:
        raise ValueError("expected an address of this host, as in 10.0.0.5")
    return found


def search_domain(text: str) -> str:
    """Return a domain in which names are looked for."""
    if not _SEARCH_DOMAIN.fullmatch(text):
        raise ValueError(f"{shown(text)} is no domain; expected one as in corp.example.org")
    return text


def dns_word(text: str) -> str:
    """Return the name of an option of resolv.conf."""
    if not _DNS_WORD.fullmatch(text):
        raise ValueError(f"{shown(text)} is no option; expected one as in ndots")
    return text


def dns_word_or_none(text: str) -> str:
    """Return the value of an option; some have none."""
    return dns_word(text) if text else ""


def address(text: str) -> str:
    """Return an IP address."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise ValueError(f"{shown(text)} is no IP address; expected one as in 10.0.0.5") from error
