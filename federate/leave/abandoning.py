"""Leave a target that is gone for good, and cannot be cleaned: free its hub pods, forget the Node.

Whether the abandoned mirrors still run, nobody can tell. So this is an operator's explicit word,
as `kubectl delete --force` is: each hub pod becomes Failed with MirrorLost and DisruptionTarget,
unless it had ended, and is removed at once, so that its owner replaces it. Nobody leads meanwhile,
or a target that comes back would be written to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from federate.cluster.port import ClusterPort
from federate.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    ServerFault,
    Throttled,
    Unauthorized,
)
from federate.leave.leaving import HubSide
from federate.leave.plan import STATIC_POD_ANNOTATION, Found, listed
from federate.leave.survey import TargetGuard, hub_pods_of
from federate.leave.tenure import Tenure
from federate.model.marks import record_of
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    condition_of,
    is_terminating,
    key_of,
    metadata_of,
    resource_version_of,
    uid_of,
)
from federate.model.pods import is_daemonset_pod, is_terminal
from federate.model.resources import PODS
from federate.node.render import TARGET_REACHABLE
from federate.status.project import lost_status
from federate.status.writing import plan_hub_write

ANSWER_SECONDS = 10.0
"""How long a target that may be gone is waited for."""
AT_ONCE = 20
TRIES = 3
"""The hub's own controllers write pods too, as when their node has been silent for long."""


def says_reachable(node: JsonObject | None) -> bool:
    """Tell whether a federate that lives says that the target answers."""
    if node is None:
        return False
    kinds = (TARGET_REACHABLE, "Ready")
    return all((condition_of(node, kind) or {}).get("status") == "True" for kind in kinds)


async def answers(hub: ClusterPort, target: ClusterPort, found: Found) -> bool:
    """Ask the target itself; another cluster than the one on record is none.

    Whatever it says, were it only that it is busy or that we may not ask, it lives.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await TargetGuard(hub, target, found).confirm()
    except (Forbidden, Unauthorized, Throttled, ServerFault):
        return True
    except (ClusterError, TimeoutError):
        return False
    return True


class Abandoning(HubSide):
    """One leaving without the target."""

    async def run(self) -> None:
        """Free the hub pods, and forget the virtual node.

        Raises:
            FederateError: it could not go on; what is done stays done.
        """
        await self.mark()
        tenure = self.tenure()
        async with tenure.standing():
            await self.retire(tenure)
            await self.rest(tenure)
            await self.step("freeing hub pods", lambda: self._free(tenure))
            await self.forget_node(tenure)
        await self.forget_lease()

    async def _free(self, tenure: Tenure) -> str:
        """End and remove the hub pods; says which are still there.

        Those that only wait for the finalizers of others are left to them.
        """
        await self.mark()
        await tenure.confirm_held()
        hub_pods = await hub_pods_of(self._ports.hub, self._name)
        left = [pod for pod in hub_pods if _is_to_be_freed(pod)]
        for start in range(0, len(left), AT_ONCE):
            await self._free_some(left[start : start + AT_ONCE], tenure.election.fence)
        return f"{len(left)} hub pods: {listed([str(key_of(p)) for p in left][:3])}" if left else ""

    async def _free_some(self, pods: Sequence[JsonObject], fence: Callable[[], None]) -> None:
        ends = (self._end(pod, fence) for pod in pods)
        answers = await asyncio.gather(*ends, return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        if failed:
            raise failed[0]

    async def _end(self, pod: JsonObject, fence: Callable[[], None]) -> None:
        """Write how the pod ended, then delete the version that says so."""
        key, uid = key_of(pod), uid_of(pod)
        for _ in range(TRIES):
            try:
                fence()
                ended = await self._write_end(pod)
                fence()
                await self._ports.hub.delete(
                    PODS,
                    key,
                    uid=uid,
                    resource_version=resource_version_of(ended),
                    grace_seconds=0,
                )
            except Conflict:
                pod = await self._ports.hub.get(PODS, key)
                if uid_of(pod) != uid:
                    return
            except NotFound:
                return
            else:
                return

    async def _write_end(self, pod: JsonObject) -> JsonObject:
        if is_terminal(pod):
            return pod
        record = record_of(pod)
        where = f"; its mirror {record.mirror} may still run there" if record is not None else ""
        message = f"{self._name} was abandoned by an operator (federate leave --abandon){where}"
        write = plan_hub_write(pod, status=lost_status(pod, message=message, now=self.now()))
        if write is None:
            return pod
        reply: JsonDict = await self._ports.hub.patch(
            PODS, key_of(pod), write.patch, subresource="status"
        )
        return reply


def _is_to_be_freed(pod: JsonObject) -> bool:
    """Leave out what is made again as long as there is a Node, and what others hold."""
    if STATIC_POD_ANNOTATION in annotations_of(pod):
        return False
    if is_daemonset_pod(pod) and record_of(pod) is None:
        return False
    held = metadata_of(pod).get("finalizers") and is_terminating(pod) and is_terminal(pod)
    return not held
