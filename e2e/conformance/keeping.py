"""Keep records as files, and write the page from them."""

from pathlib import Path

import yaml

from .comparing import Comparison, Exemption, compare
from .page import render_page, total
from .record import Record, Runs, read_record, render_record
from .slices import SLICES

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parents[1] / "docs" / "conformance.md"


class Keeping:
    """The files of one checkout."""

    def __init__(self, folder: Path = FOLDER, page: Path = PAGE) -> None:
        self._results = folder / "results"
        self._exemptions = folder / "exemptions.yaml"
        self._page = page

    def read(self, name: str) -> dict[str, Runs]:
        """Read what is known of a slice."""
        try:
            return read_record(self._file(name).read_text())[1]
        except FileNotFoundError:
            return {}

    def write(self, name: str, record: Record, *, version: str) -> None:
        """Keep what is known of a slice."""
        self._results.mkdir(exist_ok=True)
        new = self._file(name).with_suffix(".new")
        new.write_text(render_record(record, version=version))
        new.replace(self._file(name))

    def exemptions(self) -> list[Exemption]:
        """Read what cannot pass by design."""
        listed = yaml.safe_load(self._exemptions.read_text()) or ()
        return [Exemption(pattern=one["pattern"], reason=one["reason"]) for one in listed]

    def compared(self) -> dict[str, list[Comparison]]:
        """Compare all slices of which something is known."""
        exemptions = self.exemptions()
        return {name: compare(record, exemptions) for name in SLICES if (record := self.read(name))}

    def page(self) -> str:
        """Render the page."""
        versions = {
            read_record(self._file(name).read_text())[0]
            for name in SLICES
            if self._file(name).is_file()
        }
        return render_page(", ".join(sorted(versions)) or "none yet", self.compared())

    def write_page(self) -> str:
        """Write the page; returns the figure in words."""
        self._page.write_text(self.page())
        return total(self.compared()).sentence()

    def _file(self, name: str) -> Path:
        return self._results / f"{name}.json"
