"""The buffers that a rank holds alike with others: where each lies in their common file, and how a rank copies them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_THREAD, getrusage

import xxhash

from dlrl_core.workload.captured_state import CapturedState, DivisibleBuffer, StateBuffer
from dlrl_state.alike_content import AlikeContent, group_name, link_name, stripe_size
from dlrl_state.version_folder import Fill, Piece, Span

ALIGNED = 64
_CHUNK = 64 * 2**20
_LANES = 2


def copy_buffers(copies: Sequence[tuple[StateBuffer, memoryview]]) -> tuple[list[str], float]:
    """Copy each buffer to its memory, in two threads; returns their checksums, and the processor time."""

    def copy(index: int) -> tuple[str, float]:
        began, (buffer, target) = time.thread_time(), copies[index]
        buffer.copy_to(target)
        return xxhash.xxh3_64(target).hexdigest(), time.thread_time() - began

    by_size = sorted(range(len(copies)), key=lambda index: -copies[index][0].size)
    with ThreadPoolExecutor(_LANES, thread_name_prefix="dlrl-copy") as lanes:
        done = dict(zip(by_size, lanes.map(copy, by_size), strict=True))
    return [done[index][0] for index in range(len(copies))], sum(seconds for _, seconds in done.values())


@dataclass(frozen=True, kw_only=True)
class AlikeLayout:
    """How the buffers that a rank holds alike with others lie in their file: the same on all ranks that have them."""

    group: str
    places: dict[str, Span]
    """Of each buffer."""
    spans: dict[Span, str]
    """The ranges that are copied and checked one by one, each with its buffer."""
    size: int

    @property
    def file(self) -> str:
        """What a version calls it."""
        return link_name(self.group)


def alike_layout(captured: CapturedState, role: str) -> AlikeLayout | None:
    """None if the rank holds nothing alike with others."""
    firsts = {(content, captured.buffers[name].size): name for name, content in [*captured.alike.items()][::-1]}
    contents = {name: content for content, name in firsts.items()}  # another of that name is kept as the rank's own
    starts: dict[tuple[str, int], int] = {}
    end = size = 0
    for content in sorted(firsts):
        starts[content] = end
        size = end + content[1]
        end += -(-content[1] // ALIGNED) * ALIGNED
    places = {name: (starts[content], content[1]) for name, content in contents.items()}
    spans = {span: name for name, place in places.items() for span in _cut(place, stripe_size(size))}
    group = group_name(json.dumps([role, *starts]))
    return AlikeLayout(group=group, places=places, spans=spans, size=size) if size else None


def _cut(place: Span, stripe: int) -> Iterator[Span]:
    at, end = place[0], sum(place)
    while at < end:
        upto = min(end, at + _CHUNK, (at // stripe + 1) * stripe)
        yield at, upto - at
        at = upto


class AlikeCopying:
    """How one rank copies its part of them from its memory. `is_checked`: it also looks whether they are alike."""

    def __init__(self, layout: AlikeLayout, captured: CapturedState, *, is_checked: bool) -> None:
        self._layout = layout
        self._captured = captured
        self._is_checked = is_checked
        self._own: dict[Span, str] = {}
        """Checksums of this rank's memory."""
        self.cpu_s = 0.0

    def write_to(self, content: AlikeContent, part: Path, on_copied: Callable[[], None]) -> list[Piece]:
        """Have all ranks of this node copy what they hold alike, this one a part of it, and link it into a version.

        `on_copied` is called when this rank has done its part. Raises OSError if another one does not, and ValueError
        if this rank has other bytes.
        """
        began = getrusage(RUSAGE_THREAD).ru_utime  # the kernel's share of this thread is counted by its caller
        with content.joined():
            content.copy(self._fill)
            if self._is_checked:
                self._look_at_others()
            on_copied()
            self.cpu_s += getrusage(RUSAGE_THREAD).ru_utime - began
            found = content.digests()
            self._check(found, content.workload)
            content.link_to(part)
        return [Piece(self._layout.file, *span, digest) for span, (digest, _) in found.items()]

    def _fill(self, wanted: Sequence[tuple[Span, memoryview]]) -> list[str]:
        digests, seconds = copy_buffers([(self._memory(span), target) for span, target in wanted])
        self._own |= {span: digest for (span, _), digest in zip(wanted, digests, strict=True)}
        self.cpu_s += seconds
        return digests

    def _look_at_others(self) -> None:
        """Compute the checksums of what other ranks copy, from the memory of this one."""
        scratch = memoryview(bytearray(_CHUNK))
        for span in self._layout.spans.keys() - self._own.keys():
            self._memory(span).copy_to(scratch[: span[1]])
            self._own[span] = xxhash.xxh3_64(scratch[: span[1]]).hexdigest()

    def _check(self, found: Mapping[Span, tuple[str, str]], workload: str) -> None:
        for span, digest in self._own.items():
            kept, by = found[span]
            if digest != kept:
                name = self._layout.spans[span]
                content = self._captured.alike[name]
                raise ValueError(
                    f"'{workload}' holds other bytes than '{by}' in buffer '{name}', which it says they hold alike "
                    f"('{content}'); name in 'alike' only what has the same bytes on all these ranks"
                )

    def _memory(self, span: Span) -> StateBuffer:
        name = self._layout.spans[span]
        buffer, start = self._captured.buffers[name], span[0] - self._layout.places[name][0]
        if span[1] == buffer.size:
            return buffer
        return buffer.part(start, span[1]) if isinstance(buffer, DivisibleBuffer) else _Part(buffer, start, span[1])


@dataclass(frozen=True)
class _Part:
    """A range of a buffer that can only be copied whole."""

    buffer: StateBuffer
    start: int
    size: int

    def copy_to(self, target: memoryview) -> None:
        whole = memoryview(bytearray(self.buffer.size))
        self.buffer.copy_to(whole)
        target[:] = whole[self.start : self.start + self.size]


def receive_alike(content: AlikeContent, pieces: Sequence[Piece], part: Path, fill: Fill) -> None:
    """Get the content from another process, as far as no process of this node has or does, and link it into a version.

    Raises OSError if what is here is not the same.
    """
    known = {piece.span: piece for piece in pieces}

    def fill_spans(wanted: Sequence[tuple[Span, memoryview]]) -> list[str]:
        fill([(known[span], view) for span, view in wanted])
        return [known[span].digest for span, _ in wanted]

    with content.joined():
        content.copy(fill_spans)
        for span, (digest, workload) in content.digests(on_open=lambda: content.copy(fill_spans)).items():
            if digest != known[span].digest:
                raise OSError(f"'{content.workload}' and '{workload}' do not hold alike what they say they do")
        content.link_to(part)
