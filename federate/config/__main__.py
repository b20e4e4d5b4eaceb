"""Write docs/reference/config.md anew: `python -m federate.config [FILE]`."""

from __future__ import annotations

import sys
from pathlib import Path

from federate.config.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "config.md"

if __name__ == "__main__":
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(reference(), encoding="utf-8")
