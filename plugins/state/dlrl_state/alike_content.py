"""Content that several ranks of a node hold alike: one file for each commit, to which each rank's version has a link.

The ranks divide the work: each claims stripes of the file, copies them from its own memory and writes down their
checksums. When all stripes are done, each rank links the file into the folder of its version, which is then read,
checked, sent and removed like any other. The file is needed as long as a version has a link to it, or a process that is
about to make one lives; then it is written over. A lock of the kernel, held for short changes only, orders them.

A process that pulls a copy from another node takes part like a rank, but ranks take its stripes over, as only they know
when their own memory may change. So it writes what it has got, and checked, under that lock, if the stripe is its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dlrl_core.workload.state_keeper import Commit
from dlrl_state.version_folder import Span, is_alive, this_process

_PREFIX, _SUFFIX = "alike-", ".bytes"
_LINK = re.compile(rf"{_PREFIX}[0-9a-f]{{16}}\{_SUFFIX}")
GROUPS = f"{_PREFIX}{'[0-9a-f]' * 16}"
"""Matches the folders of groups below that of a run."""
_FILE, _STATE, _LOCK, _POOL, _OVERDUE = "content", "state.json", "lock", "pool", "overdue"
_STRIPES = 8
_SMALLEST = 2**20
_AT_ONCE = 64 * 2**20
_LOOK_S = 0.01
_READ_S = 0.5
"""After this time it is read again in any case: two writes within a tick of the clock can look like one."""
_LOCK_S = 30.0
_RELEASE_S = 5.0
"""How long other ranks may take to begin the same commit, and so to give up the version before the last."""

FillSpans = Callable[[Sequence[tuple[Span, memoryview]]], list[str]]
"""Writes ranges to their memory; returns their checksums."""


def group_of(file: str) -> str | None:
    """The folder of the group to whose content this file of a version is a link; None if it is none."""
    return file.removesuffix(_SUFFIX) if _LINK.fullmatch(file) else None


def link_name(group: str) -> str:
    """What a version calls its link."""
    return f"{group}{_SUFFIX}"


def bytes_in(group: Path) -> int:
    """What lies in a group's folder."""
    size = 0
    for path in (*group.glob(f"*/{_FILE}"), group / _POOL):
        with contextlib.suppress(FileNotFoundError):  # another rank removes it now
            size += path.stat().st_blocks * 512
    return size


def bytes_for(group: Path, commit: Commit) -> int:
    """What is there for the content of this commit: of other ranks that have begun it, or to be written over."""
    size = 0
    for path in (group / f"{commit.version}-{commit.id}" / _FILE, group / _POOL):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_blocks * 512
    return size


def drop_unused(group: Path) -> None:
    """Free the content of commits that no version has and no process will have."""
    with contextlib.suppress(OSError), _locked(group):
        for folder in [one for one in group.iterdir() if one.is_dir()]:
            _reclaim(folder)
        (group / _POOL).unlink(missing_ok=True)


def stripe_size(size: int) -> int:
    """Of a file of that size. No range that is copied crosses the border of a stripe."""
    return max(_SMALLEST, -(-size // _STRIPES // mmap.PAGESIZE) * mmap.PAGESIZE)


def group_name(key: str) -> str:
    """The folder of ranks that hold the same buffers alike; `key` tells which they are."""
    return f"{_PREFIX}{hashlib.sha256(key.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class _Claim:
    """Who copies a stripe, or has."""

    workload: str
    member: str
    """Empty if it gave up."""
    digests: list[str] | None = None
    is_pulled: bool = False
    """Whether it gets the bytes from another node, on which no rank of this one shall depend."""

    @property
    def is_done(self) -> bool:
        return self.digests is not None

    @property
    def is_open(self) -> bool:
        """Whether it is not done, and won't be by this process."""
        return not self.is_done and not _lives(self.member)


@dataclass
class _State:
    members: list[str]
    """Processes that are about to link the file, or to write to it."""
    claims: list[_Claim | None]


class AlikeContent:
    """What the ranks of a group hold alike at one commit, on this machine, as one of them takes part in it."""

    def __init__(
        self,
        group: Path,
        commit: Commit,
        workload: str,
        spans: Collection[Span],
        release: Callable[[], None],
        *,
        is_pulled: bool = False,
    ) -> None:
        """`release` removes old versions that no process will remove."""
        self._is_pulled = is_pulled
        self._group = group
        self._folder = group / f"{commit.version}-{commit.id}"
        self.workload = workload
        self._release = release
        self._size = max(start + size for start, size in spans)
        stripe = stripe_size(self._size)
        self._stripes: list[list[Span]] = [[] for _ in range(-(-self._size // stripe))]
        for span in sorted(spans):
            self._stripes[span[0] // stripe].append(span)
        pid, started = this_process()
        self._member = f"{pid}-{started}-{uuid.uuid4().hex}"

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Take part: the file is there meanwhile, and a claim that is not done is given up in the end.

        Old versions of living ranks are waited for, as they begin the same commit; if they do not, a third version is
        made.
        """
        late_at = time.monotonic() + _RELEASE_S
        self._release()
        while not self._join(is_late=time.monotonic() > late_at):
            time.sleep(_LOOK_S)
            self._release()
        try:
            yield
        finally:
            with contextlib.suppress(OSError), self._changed() as state:  # the run may be over
                state.members.remove(self._member)
                state.claims = [one and self._given_up(one) for one in state.claims]

    def _given_up(self, claim: _Claim) -> _Claim:
        return claim if claim.is_done or claim.member != self._member else replace(claim, member="")

    def copy(self, fill: FillSpans) -> None:
        """Claim one stripe after the other, and have it filled, until all are claimed. Each rank begins at another."""
        while (stripe := self._claim(_rank_of(self.workload) % len(self._stripes))) is not None:
            filled = self._pulled if self._is_pulled else self._filled
            digests = filled(stripe, fill)
            with self._changed() as state:
                if (mine := state.claims[stripe]) is not None and mine.member == self._member:
                    state.claims[stripe] = replace(mine, digests=digests)

    def digests(self, on_open: Callable[[], None] | None = None) -> dict[Span, tuple[str, str]]:
        """Wait until all stripes are done; returns the checksum of each range, and the workload that copied it.

        A stripe whose process gave up or died is left to `on_open`. Without one, raises OSError that names it.
        """
        read, claims, again_at = self._written(), self._read().claims, time.monotonic() + _READ_S
        while claims and not all(one is not None and one.is_done for one in claims):
            for one in claims:
                if one is None or one.is_open:
                    if on_open is None:
                        raise OSError(_why_open(one))
                    on_open()
            if (now := self._written()) == read and time.monotonic() < again_at:
                time.sleep(_LOOK_S)
            else:
                read, claims, again_at = now, self._read().claims, time.monotonic() + _READ_S
        return {
            span: (digest, one.workload)
            for spans, one in zip(self._stripes, filter(None, claims), strict=True)
            for span, digest in zip(spans, one.digests or [], strict=True)
        }

    def link_to(self, part: Path) -> None:
        """Add the file to a version that is being written."""
        os.link(self._folder / _FILE, part / link_name(self._group.name))

    def _claim(self, first: int) -> int | None:
        with self._changed() as state:
            order = (*range(first, len(state.claims)), *range(first))
            free = (stripe for stripe in order if self._may_claim(state.claims[stripe]))
            stripe: int | None = next(free, None)
            if stripe is not None:
                state.claims[stripe] = _Claim(self.workload, self._member, is_pulled=self._is_pulled)
        return stripe

    def _may_claim(self, claim: _Claim | None) -> bool:
        if claim is None or claim.is_open:
            return True
        return claim.is_pulled and not claim.is_done and not self._is_pulled

    def _filled(self, stripe: int, fill: FillSpans) -> list[str]:
        targets = self._targets(self._stripes[stripe])
        return fill(targets) if targets else []

    def _pulled(self, stripe: int, fill: FillSpans) -> list[str]:
        """The same by way of memory of this process: nothing is written to a stripe that a rank has taken over."""
        digests: list[str] = []
        for spans in _batches(self._stripes[stripe]):
            got = [(span, memoryview(bytearray(span[1]))) for span in spans]
            digests += fill(got)
            with self._locked():
                claim = self._read().claims[stripe]
                if claim is None or claim.member != self._member:
                    break
                for (_, target), (_, view) in zip(self._targets(spans), got, strict=True):
                    target[:] = view
        return digests

    def _targets(self, spans: Sequence[Span]) -> list[tuple[Span, memoryview]]:
        """The memory of ranges of the file that follow each other."""
        if not spans:
            return []
        first, end = spans[0][0] // mmap.PAGESIZE * mmap.PAGESIZE, sum(spans[-1])
        with (self._folder / _FILE).open("r+b", buffering=0) as file:
            os.posix_fallocate(file.fileno(), first, end - first)  # a full disk is an error here, not a signal later
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE  # all pages at once: one by one they cost as much as the copy
            view = memoryview(mmap.mmap(file.fileno(), end - first, flags=flags, offset=first))
        return [((start, size), view[start - first : start - first + size]) for start, size in spans]

    # ---- the folder of the group

    def _join(self, *, is_late: bool) -> bool:
        """False if other ranks have to give up a version first, so that no more than two lie here."""
        with self._locked():
            try:
                state = self._read()
            except FileNotFoundError:
                if not self._make(is_late=is_late):
                    return False
                state = _State([], [None] * len(self._stripes))
            state.members.append(self._member)
            self._write(state)
        return True

    def _make(self, *, is_late: bool) -> bool:
        others = [one for one in self._group.iterdir() if one.is_dir() and one != self._folder]
        used = [one for one in others if not _reclaim(one)]
        held = sorted((one for one in used if not (one / _OVERDUE).exists()), key=_version_of)
        pool = self._group / _POOL
        if len(held) > 1 and not pool.exists() and not is_late:
            return False
        for folder in held[:-1] if is_late else []:
            (folder / _OVERDUE).touch()
        shutil.rmtree(self._folder, ignore_errors=True)  # of a process that died just here
        self._folder.mkdir(mode=0o700)
        file = self._folder / _FILE
        if pool.exists():
            pool.rename(file)
        file.touch()
        os.truncate(file, self._size)
        return True

    @contextlib.contextmanager
    def _changed(self) -> Iterator[_State]:
        with self._locked():
            state = self._read()
            yield state
            self._write(state)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return _locked(self._group)

    def _read(self) -> _State:
        return _read_state(self._folder)

    def _written(self) -> tuple[int, int]:
        """Differs after each write, if it is not the second within a tick; costs less than to read it."""
        status = (self._folder / _STATE).stat()
        return status.st_ino, status.st_mtime_ns

    def _write(self, state: _State) -> None:
        new = self._folder / f"{_STATE}-new"
        new.write_text(json.dumps(asdict(state)))
        new.rename(self._folder / _STATE)


def _reclaim(folder: Path) -> bool:
    """Remove a commit's content, if no version has it and no process will; its file is kept to write over."""
    with contextlib.suppress(FileNotFoundError):
        if any(_lives(member) for member in _read_state(folder).members):
            return False
    pool = folder.with_name(_POOL)
    with contextlib.suppress(FileNotFoundError):
        if (folder / _FILE).stat().st_nlink > 1:
            return False
        if not pool.exists():
            (folder / _FILE).rename(pool)
    shutil.rmtree(folder, ignore_errors=True)
    return True


@contextlib.contextmanager
def _locked(group: Path) -> Iterator[None]:
    until = time.monotonic() + _LOCK_S
    with (group / _LOCK).open("a") as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > until:
                raise OSError(f"another process has locked '{group / _LOCK}' for {_LOCK_S:g} s")
            time.sleep(_LOOK_S)
        yield


def _batches(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Ranges that follow each other, so many at once as fit into a little memory."""
    batch: list[Span] = []
    for span in spans:
        if batch and sum(size for _, size in batch) + span[1] > _AT_ONCE:
            yield batch
            batch = []
        batch.append(span)
    if batch:
        yield batch


def _read_state(folder: Path) -> _State:
    told = json.loads((folder / _STATE).read_text())
    return _State(told["members"], [_Claim(**one) if one else None for one in told["claims"]])


def _lives(member: str) -> bool:
    pid, started, *_ = (*member.split("-"), "") if member else ("0", "0")
    return is_alive((int(pid), int(started)))


def _rank_of(workload: str) -> int:
    rank = workload.rpartition("-")[2]
    return int(rank) if rank.isdigit() else 0


def _version_of(folder: Path) -> int:
    return int(folder.name.partition("-")[0])


def _why_open(claim: _Claim | None) -> str:
    what = "what ranks of this node hold alike"
    if claim is None:
        return f"a part of {what} was not copied"
    return f"'{claim.workload}' {'died' if claim.member else 'gave up'} while it copied its part of {what}"
