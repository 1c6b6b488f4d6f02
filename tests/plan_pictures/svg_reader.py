"""Reads a picture of a plan back, as any program could."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"


class SvgPicture:
    """What a picture shows."""

    def __init__(self, source: str | ET.Element) -> None:
        self.root = ET.fromstring(source) if isinstance(source, str) else source
        assert self.root.tag == f"{SVG}svg"

    def groups(self, kind: str) -> Iterator[ET.Element]:
        return (found for found in self.root.iter(f"{SVG}g") if found.get("class") == kind)

    def texts(self, kind: str) -> list[list[str]]:
        """The words of each group of a kind, its tooltip left out."""
        return [[text.text or "" for text in found.iter(f"{SVG}text")] for found in self.groups(kind)]

    def sum_of(self, kind: str, name: str) -> int:
        return sum(int(found.get(f"data-{name}", 0)) for found in self.groups(kind))

    @property
    def devices(self) -> list[tuple[int, int]]:
        """Node and device of each that is drawn by itself."""
        return [(int(one.get("data-node", -1)), int(one.get("data-device", -1))) for one in self.groups("device")]

    @property
    def device_count(self) -> int:
        folded = sum(self.sum_of(kind, "devices") for kind in ("folded-devices", "folded-nodes", "left-out"))
        return len(self.devices) + folded

    @property
    def workloads(self) -> list[str]:
        """Names of those that are drawn by themselves."""
        return [found.get("data-name", "") for found in self.groups("workload")]

    @property
    def workload_count(self) -> int:
        in_rows = sum(
            int(row.get("data-seats", 0)) * sum(one.get("class") == "folded-workloads" for one in row)
            for row in self.groups("folded-devices")
        )
        elsewhere = sum(self.sum_of(kind, "workloads") for kind in ("no-device", "folded-nodes", "left-out"))
        return len(self.workloads) + in_rows + elsewhere

    def tooltip(self, node: int, device: int) -> str:
        place = {"data-node": str(node), "data-device": str(device)}
        found = next(one for one in self.groups("device") if place.items() <= one.attrib.items())
        return found.findtext(f"{SVG}title") or ""
