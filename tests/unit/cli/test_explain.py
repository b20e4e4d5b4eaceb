"""`federate explain`: what may be typed, and how a road is drawn."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from federate.cli.explain import Subject, draw, read_name
from federate.errors import ConfigError
from federate.explain.road import road_of
from federate.explain.stations import Road, Standing, Station
from federate.model.objects import ObjectKey
from tests.support.explaining import facts, web


@pytest.mark.parametrize(
    ("subject", "name", "namespace", "key"),
    [
        (Subject.POD, "shop/web-0", "", ObjectKey("shop", "web-0")),
        (Subject.POD, "web-0", "shop", ObjectKey("shop", "web-0")),
        (Subject.POD, "shop/web-0", "shop", ObjectKey("shop", "web-0")),
        (Subject.POD, "web-0", "", ObjectKey("default", "web-0")),
        (Subject.NODE, "edge", "", ObjectKey("", "edge")),
    ],
)
def test_names(subject: Subject, name: str, namespace: str, key: ObjectKey) -> None:
    assert read_name(subject, name, namespace) == key


@pytest.mark.parametrize(
    ("subject", "name", "namespace"),
    [
        (Subject.POD, "shop/web-0", "other"),
        (Subject.POD, "a/b/c", ""),
        (Subject.POD, "Web", ""),
        (Subject.POD, "", ""),
        (Subject.NODE, "shop/edge", ""),
        (Subject.NODE, "edge", "shop"),
    ],
)
def test_names_that_lead_nowhere(subject: Subject, name: str, namespace: str) -> None:
    """None of them becomes a part of a URL."""
    with pytest.raises(ConfigError):
        read_name(subject, name, namespace)


def drawn(road: Road) -> list[str]:
    out = io.StringIO()
    draw(road, Console(file=out, soft_wrap=True, width=40))
    return out.getvalue().splitlines()


def test_a_road_is_drawn_line_by_line() -> None:
    """The verdict first, what to do last; nothing is taken for markup, or cut."""
    privileged = {"securityContext": {"privileged": True}}
    main = {"name": "main", "image": "busybox", **privileged}
    shown = drawn(road_of(facts(web().with_spec(containers=[main]).build())))
    assert shown[0].startswith("pod shop/web-0: it does not run: PolicyRefused: edge refuses ")
    assert shown[1] == "  ok       pod          Pending, made 5m ago"
    assert shown[6].startswith(
        "  stop     rules        PolicyRefused: edge refuses spec.containers[main]"
    )
    assert shown[-1].startswith("Next: leave it out; or, as operator of edge, change ")


def test_since_when_and_what_helps_stand_beside() -> None:
    note = Station(id="status", standing=Standing.NOTE, said="old [news]", since="3m", todo="wait")
    road = Road(about="node edge", verdict="all is well", is_well=True, stations=(note,))
    assert drawn(road) == [
        "node edge: all is well",
        "  note     status       old [news] (for 3m)",
        f"{' ' * 24}-> wait",
    ]


def test_what_users_write_does_not_move_the_cursor() -> None:
    """Whoever explains a stranger's pod looks at a terminal of his own."""
    evil = Station(id="told", standing=Standing.STOPPED, said="a\x1b[2Jb", reason="R\x07")
    road = Road(about="pod a/b", verdict="c\x1b]0;d", is_well=False, stations=(evil,))
    assert not any("\x1b" in line or "\x07" in line for line in drawn(road))
