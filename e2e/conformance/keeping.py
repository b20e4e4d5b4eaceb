"""Keep records as files, and write the pages from them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from e2e.providersuite.page import section as provider_suite
from e2e.testbed.errors import TestbedError

from .comparing import Comparison, Exemption, compare
from .features import Area, read_areas, render_features
from .page import render_page
from .record import Record, Runs, read_record, render_record
from .slices import SLICES

FOLDER = Path(__file__).resolve().parent
DOCS = FOLDER.parents[1] / "docs"


class Keeping:
    """The files of one checkout."""

    def __init__(
        self,
        folder: Path = FOLDER,
        docs: Path = DOCS,
        *,
        sections: Sequence[Callable[[], str]] = (provider_suite,),
    ) -> None:
        """`sections` render what other judges have to tell on the page."""
        self._results = folder / "results"
        self._exemptions = folder / "exemptions.yaml"
        self._features = folder / "features.yaml"
        self._docs = docs
        self._sections = sections

    def read(self, name: str) -> dict[str, Runs]:
        """Read what is known of a slice.

        Raises:
            TestbedError: the file makes no sense.
        """
        file = self._file(name)
        try:
            return read_record(file.read_text())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise TestbedError(
                f"{file} cannot be read: {error}. Take it back from git, or delete it and run "
                f"`make conformance ARGS='--slice {name}'`."
            ) from error

    def write(self, name: str, record: Record) -> None:
        """Keep what is known of a slice; a crash leaves the file as it was, or as it shall be."""
        self._results.mkdir(exist_ok=True)
        new = self._file(name).with_suffix(".new")
        new.write_text(render_record(record))
        new.replace(self._file(name))

    def exemptions(self) -> list[Exemption]:
        """Read what cannot pass by design."""
        listed = yaml.safe_load(self._exemptions.read_text()) or ()
        return [Exemption(**one) for one in listed]

    def areas(self) -> list[Area]:
        """Read what specs are about."""
        return read_areas(self._features.read_text())

    def compared(self) -> dict[str, list[Comparison]]:
        """Compare all slices of which something is known."""
        exemptions = self.exemptions()
        return {name: compare(record, exemptions) for name in SLICES if (record := self.read(name))}

    def pages(self) -> dict[Path, str]:
        """Render the pages, by where they go."""
        compared = self.compared()
        return {
            self._docs / "conformance.md": render_page(
                compared, [section() for section in self._sections]
            ),
            self._docs / "features.md": render_features(compared, self.areas()),
        }

    def write_pages(self) -> None:
        """Write the pages."""
        for place, text in self.pages().items():
            place.write_text(text)

    def _file(self, name: str) -> Path:
        return self._results / f"{name}.json"
