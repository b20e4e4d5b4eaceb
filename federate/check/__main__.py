"""Write docs/reference/rights.md anew: `python -m federate.check > docs/reference/rights.md`."""

from __future__ import annotations

import sys

from federate.check.reference import render_reference

if __name__ == "__main__":
    sys.stdout.write(render_reference())
