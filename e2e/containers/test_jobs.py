"""Jobs and CronJobs: exit codes decide on the hub what they decide on any node (C20, C42)."""

import pytest

from e2e.support.pods import condition_of, phase_of
from e2e.support.witness import Json

from .crate import Crate, statuses_of

pytest_plugins = ["e2e.containers.fixtures"]
pytestmark = pytest.mark.e2e

FATAL_CODE = 42

NEVER = "0 0 31 2 *"
EVERY_MINUTE = "* * * * *"


def job(crate: Crate, name: str, *arguments: str, **more: object) -> Json:
    """Render a Job whose container is named after it: an index changes the pods' host names."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": job_spec(crate, name, *arguments, **more),
    }


def job_spec(crate: Crate, name: str, *arguments: str, **more: object) -> Json:
    spec = crate.spec(crate.app(*arguments, name=name), restartPolicy="Never")
    return {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}, **more}


def cron_job(crate: Crate, name: str, *, schedule: str) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {
            "schedule": schedule,
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": job_spec(crate, name, "exit", "0")},
        },
    }


@pytest.fixture(scope="module", autouse=True)
def _started(crate: Crate) -> None:
    """Submit everything before the first test waits."""
    # The Job controller waits ten seconds before it tries again: that goes first.
    crate.create(job(crate, "again", "exit", "3", backoffLimit=1))
    fatal = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [FATAL_CODE]}}
    crate.create(job(crate, "fatal", "exit", str(FATAL_CODE), podFailurePolicy={"rules": [fatal]}))
    crate.create(
        job(
            crate,
            "indexed",
            *("exit", "0,7,0"),
            completionMode="Indexed",
            completions=3,
            parallelism=3,
            backoffLimitPerIndex=0,
        )
    )
    crate.create(cron_job(crate, "nightly", schedule=NEVER))


def wait_condition(crate: Crate, name: str, kind: str) -> Json:
    """Wait until the Job says how it ended; returns the Job."""

    def probe() -> Json | None:
        found = crate.read("Job", name)
        return found if condition_of(found, kind).get("status") == "True" else None

    return crate.wait(f"Job {name} is {kind}", probe)


def exit_codes(crate: Crate, name: str) -> list[int]:
    """Return the exit codes of a Job's pods as the hub has them."""
    return sorted(
        statuses_of(pod)[name]["state"]["terminated"]["exitCode"] for pod in crate.pods_of(name)
    )


def starts(crate: Crate, name: str) -> int:
    """Count all runs of a Job's containers."""
    return sum(report.event == "started" for report in crate.told("", name))


def test_an_exit_code_fails_a_job_at_once(crate: Crate) -> None:
    """A podFailurePolicy sees the container's exit code, and nothing is tried again."""
    found = wait_condition(crate, "fatal", "Failed")
    assert condition_of(found, "Failed")["reason"] == "PodFailurePolicy"
    assert exit_codes(crate, "fatal") == [FATAL_CODE]
    assert starts(crate, "fatal") == 1


def test_an_indexed_job_tells_each_pod_its_index(crate: Crate) -> None:
    """Each container knows its index, and the Job which of them failed."""
    found = wait_condition(crate, "indexed", "Failed")
    assert found["status"]["completedIndexes"] == "0,2"
    assert found["status"]["failedIndexes"] == "1"
    assert exit_codes(crate, "indexed") == [0, 0, 7]
    assert starts(crate, "indexed") == 3


def test_a_cron_job_can_be_run_by_hand(crate: Crate) -> None:
    """`kubectl create job --from=cronjob/...` runs once in the target."""
    crate.kubectl("create", "job", "by-hand", "--from=cronjob/nightly")
    wait_condition(crate, "by-hand", "Complete")
    assert [phase_of(pod) for pod in crate.pods_of("nightly")] == ["Succeeded"]
    assert starts(crate, "nightly") == 1


def test_a_job_is_tried_again_as_often_as_it_may_be(crate: Crate) -> None:
    """Failed pods count against backoffLimit, each of them once."""
    found = wait_condition(crate, "again", "Failed")
    assert condition_of(found, "Failed")["reason"] == "BackoffLimitExceeded"
    assert found["status"]["failed"] == 2
    assert exit_codes(crate, "again") == [3, 3]
    assert starts(crate, "again") == 2


@pytest.mark.long
def test_a_cron_job_runs_every_minute(crate: Crate) -> None:
    """A CronJob on the hub runs in the target when its minute comes, once."""
    crate.create(cron_job(crate, "minutely", schedule=EVERY_MINUTE))

    def ended() -> bool:
        return any(report.event == "ended" for report in crate.told("", "minutely"))

    crate.wait("the minute has come", ended, timeout_seconds=180.0)
    crate.wait(
        "the Job is done",
        lambda: [phase_of(pod) for pod in crate.pods_of("minutely")] == ["Succeeded"],
    )
    crate.hub.delete("CronJob", crate.namespace, "minutely")
    assert starts(crate, "minutely") == 1
