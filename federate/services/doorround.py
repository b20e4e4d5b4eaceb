"""Carry out the plan for one door: the thin half of `door`.

A round may be killed between any two lines: what it makes is found again by its name and marks, and
every write names the version it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

import structlog

from federate.cluster.port import ClusterPort
from federate.companions.steps import Blocked
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    Rejected,
    ServerFault,
)
from federate.model.objects import JsonDict, JsonObject, ObjectKey, spec_of, uid_of
from federate.model.resources import ENDPOINT_SLICES, SERVICES, Resource
from federate.services.door import (
    Create,
    Delete,
    DoorReason,
    DoorStep,
    DoorView,
    Look,
    Patch,
    Rest,
    door_address,
    door_name,
    is_door,
    plan_door,
)
from federate.services.hubnames import ThroughDoor, is_address
from federate.services.ports import ServicePorts

log = structlog.stdlib.get_logger(__name__)

MOST_STEPS = 10
"""Steps of one round: the longest road has seven. More: somebody there undoes what we write."""

_INTERNAL_ERROR = 500
"""What a failing admission webhook is answered with; 502 to 504 are of proxies and of overload."""


class DoorRound:
    """One look at one door: the view grows surer from step to step."""

    def __init__(
        self,
        namespace: str,
        *,
        way: ThroughDoor,
        addresses: tuple[str, ...],
        former: tuple[str, ...],
        ports: ServicePorts,
        led_to: str = "",
        on_way: Callable[[], None] = lambda: None,
    ) -> None:
        """`former` are addresses that the door had; `led_to` is the one that it has, if known.

        `on_way` is told before and after each write that changes where packets go.
        """
        self._key = ObjectKey(namespace, door_name(ports.scope))
        self._way = way
        self._addresses = addresses
        self._former = former
        self._asks_for_former = True
        self._lost = ""
        self._led_to = led_to
        self._on_way = on_way
        self._ports = ports
        self._found: dict[Resource, JsonDict | None] = {}
        self._conflicts = 0

    async def run(self) -> Rest:
        """Go on until nothing is left to do now.

        Raises:
            LeadershipLost, ClusterError: as the steps do; what may pass is for whoever tries again.
        """
        for _ in range(MOST_STEPS):
            step = plan_door(self._view())
            match step:
                case Rest():
                    return replace(step, lost=self._lost) if step.address else step
                case Look() | Create() | Patch() | Delete():
                    refused = await self._take(step)
                    if refused is not None:
                        return refused
                case _:
                    assert_never(step)
        return self._refused(
            f"somebody in {self._ports.target_name} (an admission webhook or a controller) changes "
            f"or removes {self._key} each time that federate writes it"
        )

    def _view(self) -> DoorView:
        ports, namespace = self._ports, self._key.namespace
        return DoorView(
            scope=ports.scope,
            namespace=namespace,
            target_name=ports.target_name,
            host=self._way.host,
            port=self._way.port,
            addresses=self._addresses,
            is_literal=is_address(self._way.host),
            former=self._former,
            asks_for_former=self._asks_for_former,
            ground=ports.ground.state(namespace),
            anchor=ports.ground.anchor(namespace),
            service=self._found.get(SERVICES),
            endpoints=self._found.get(ENDPOINT_SLICES),
            is_fresh=bool(self._found),
        )

    async def _look(self) -> None:
        target, found = self._ports.target, dict[Resource, JsonDict | None]()
        found[SERVICES] = await _read(target, SERVICES, self._key)
        if is_door(self._ports.scope, found[SERVICES] or {}):
            self._led_to = door_address(found[SERVICES] or {})
        found[ENDPOINT_SLICES] = await _read(target, ENDPOINT_SLICES, self._key)
        if None in found.values():
            await self._ports.confirm_target()
        self._found = found

    async def _take(self, step: Look | Create | Patch | Delete) -> Rest | None:
        """Take one step; return what it comes to where the target refuses it."""
        try:
            if isinstance(step, Look):
                await self._look()
            else:
                await self._write_told(step)
        except (AlreadyExists, NotFound, Conflict) as error:
            self._conflicts += 1
            if self._conflicts > 1:
                raise
            log.debug("a door is not as it was seen", door=str(self._key), error=str(error))
            self._found = {}
        except ClusterError as error:
            if self._is_given_away(step, error):
                return None
            if not is_refusal(error):
                raise
            if isinstance(step, Look) and self._led_to:
                # What may not be looked at (any more) leads there still.
                log.info("a door may not be looked at", door=str(self._key), error=str(error))
                return Rest(address=self._led_to)
            return self._refused(f"{self._ports.target_name} answered: {error.detail}")
        return await self._stripped(step)

    async def _write_told(self, step: Create | Patch | Delete) -> None:
        """Write; a reply that is lost says nothing of whether it was done."""
        if isinstance(step, Patch) and step.patch.body.keys() == {"metadata"}:
            await self._write(step)
            return
        self._on_way()
        try:
            await self._write(step)
        finally:
            self._on_way()

    async def _write(self, step: Create | Patch | Delete) -> None:
        self._ports.fence()
        self._ports.fence_target()
        target, key = self._ports.target, self._key
        match step:
            case Create(resource=resource, body=body):
                self._found[resource] = await target.create(resource, body, namespace=key.namespace)
            case Patch(resource=resource, patch=patch):
                self._found[resource] = await target.patch(resource, key, patch)
            case Delete(resource=resource, uid=uid, resource_version=version):
                await self._ports.confirm_target()
                self._former = (*self._former, *filter(None, [self._address()]))
                await target.delete(resource, key, uid=uid, resource_version=version)
                self._found = {}
            case _:
                assert_never(step)
        log.info("door written", door=str(key), step=type(step).__name__)

    def _address(self) -> str:
        return door_address(self._found.get(SERVICES) or {})

    def _is_given_away(self, step: DoorStep, error: ClusterError) -> bool:
        """Tell whether the former address may be another Service's by now: then any will do."""
        asked = spec_of(step.body).get("clusterIP") if isinstance(step, Create) else None
        if not asked or not isinstance(error, Rejected):
            return False
        self._asks_for_former, self._lost = False, str(asked)
        return True

    def _refused(self, why: str) -> Rest:
        return Rest(
            blocked=Blocked(
                reason=DoorReason.SERVICE_REFUSED,
                message=f"the Service that leads there cannot be kept as {self._key}: {why}",
            )
        )

    async def _stripped(self, step: DoorStep) -> Rest | None:
        """Take back what came back without our marks: nobody could find it again.

        It is ours beyond doubt: the reply to our own create names its uid.
        """
        if not isinstance(step, Create):
            return None
        made: JsonObject | None = self._found.get(step.resource)
        if made is None or is_door(self._ports.scope, made):
            return None
        self._ports.fence()
        self._ports.fence_target()
        await self._ports.target.delete(step.resource, self._key, uid=uid_of(made))
        return Rest(
            blocked=Blocked(
                reason=DoorReason.MARKS_REMOVED,
                message=f"{self._ports.target_name} strips federate's labels from {self._key} (an "
                "admission webhook or policy): let federate.dev/ keys pass there",
            )
        )


def is_refusal(error: ClusterError) -> bool:
    """Tell what stays refused until somebody acts from what may pass by itself."""
    is_broken = isinstance(error, ServerFault) and error.status == _INTERNAL_ERROR
    return isinstance(error, (Forbidden, Rejected)) or is_broken


async def _read(cluster: ClusterPort, resource: Resource, key: ObjectKey) -> JsonDict | None:
    try:
        return await cluster.get(resource, key)
    except NotFound:
        return None
