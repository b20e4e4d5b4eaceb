"""A conformance run on the target's side, by a played ginkgo: a process for tests to interrupt.

`python -m tests.support.conformancerun FOLDER SPEC...` expects `ginkgo` in the folder, keeps what
it knows of the slice `apps` there, and ends as `python -m e2e.conformance` does.
"""

import signal
import sys
from pathlib import Path

from e2e.conformance.__main__ import terminate
from e2e.conformance.keeping import Keeping
from e2e.conformance.origin import Origin
from e2e.conformance.runner import Chosen, Runner
from e2e.conformance.suite import Programs, Suite
from e2e.conformance.watch import Watch
from e2e.testbed.progress import Progress

SLICE = "apps"


def main() -> None:
    folder, specs = Path(sys.argv[1]), sys.argv[2:]
    # What a shell starts in the background ignores interrupts, and so does all it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    progress = Progress()
    programs = Programs(ginkgo=folder / "ginkgo", suite=Path("e2e.test"), kubectl=Path("kubectl"))
    suite = Suite(programs, folder=folder / "logs", progress=progress)
    runner = Runner(
        suite=suite,
        keeping=Keeping(folder, folder),
        progress=progress,
        chosen={SLICE: Chosen(of_slice=specs, wanted=specs)},
        origin=lambda: Origin(kubernetes="v1.34.4", at="2026-11-30 12:00"),
        procs=1,
    )
    try:
        runner.run_direct(SLICE, Path("kubeconfig"), lambda: Watch({}))
    finally:
        suite.close()


if __name__ == "__main__":
    main()
