"""What is known of the suite's specs, on a real kubelet's node and on a virtual one."""

from pathlib import Path

import yaml

from e2e.conformance.comparing import Exemption
from e2e.conformance.record import Record, Runs, read_record, render_record

FOLDER = Path(__file__).resolve().parent


class Keeping:
    """The files of one checkout."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._results = folder / "results.json"
        self._exemptions = folder / "exemptions.yaml"

    def read(self) -> dict[str, Runs]:
        """Read what is known."""
        if not self._results.is_file():
            return {}
        return read_record(self._results.read_text())

    def write(self, record: Record) -> None:
        """Keep what is known."""
        self._results.write_text(render_record(record))

    def exemptions(self, *, with_containers: bool) -> list[Exemption]:
        """Read which specs ask for what no kubelet does; some do so only of real containers."""
        listed = yaml.safe_load(self._exemptions.read_text())
        found = [*listed["always"], *(listed["withContainers"] if with_containers else ())]
        return [Exemption(**one) for one in found]
