"""Become a server, after writing down which process that is.

Run as a script: `launch.py RECORD PARENT PROGRAM ARGUMENT...`. The record is written by the very
process it describes, so that there is no moment in which a server runs and nobody knows of it,
even when its parent is killed. PARENT is the pid whose death ends the server, or 0 to outlive it.
"""

import ctypes
import json
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    record, parent, *command = sys.argv[1:]
    if int(parent):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The signal is for deaths from now on; an earlier one shows in the parent's pid.
        if os.getppid() != int(parent):
            sys.exit("the test run that wanted this server is gone")
    with open("/proc/self/stat") as stat:
        start_ticks = int(stat.read().rpartition(")")[2].split()[19])
    with open("/proc/sys/kernel/random/boot_id") as boot:
        identity = {"pid": os.getpid(), "start_ticks": start_ticks, "boot": boot.read().strip()}
    with open(f"{record}.new", "w") as file:
        json.dump({**identity, "program": command[0]}, file)
    os.rename(f"{record}.new", record)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
