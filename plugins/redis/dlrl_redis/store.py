"""RedisStore: the store for clusters, on a server with the Redis protocol that every node reaches.

Needs redis-py: the plugin imports this module when a URL asks for it. Each job has, under a prefix, a hash
'head:<job>' (version, id of the last commit), a hash 'documents:<job>' and a list 'journal:<job>'.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from dlrl_core.context.store import Store, StoredEvent, StoredJob, check_schema, new_commit_id, version_conflict
from dlrl_core.errors import SchemaError
from dlrl_core.plugin.verdict import Verdict, warning
from dlrl_redis.client import RedisClient
from dlrl_redis.url import RedisUrl

SCHEMA = 1
"""Number of the layout, kept under the key 'schema'."""

# The script of a commit, which the server runs as one step and writes to the append-only file as one block. A script
# that fails in the middle is not undone: so everything that could be refused is checked before the first write.
# KEYS: schema, jobs, and head, documents and journal of the job. ARGV: schema, job, expected version, commit id, then
# three numbers of arguments, then the arguments: keys and texts of documents to put, keys to delete, events.
# Versions are times in microseconds: a server that crashes may lose what it confirmed last, and a version that an old
# writer still expects must not come again. A head whose is_live is not 1 is that of a job that an earlier dlrl deleted.
_COMMIT = """
local schema = redis.call('GET', KEYS[1])
if schema and schema ~= ARGV[1] then return {'schema', schema} end
for number, wanted in pairs({[2] = 'set', [3] = 'hash', [4] = 'hash', [5] = 'list'}) do
  local found = redis.call('TYPE', KEYS[number]).ok
  if found ~= 'none' and found ~= wanted then return {'foreign', KEYS[number]} end
end
local head = redis.call('HMGET', KEYS[3], 'version', 'is_live', 'commit_id')
local version = head[1]
if version and not string.match(version, '^%d+$') then return {'foreign', KEYS[3]} end
local current = '0'
if version and head[2] == '1' then current = version end
if current ~= '0' and head[3] == ARGV[4] then return {'written', current} end
if current ~= ARGV[3] then return {'conflict', current} end
local puts, deletes, events = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local now = redis.call('TIME')
local at_least = tonumber(version or '0') + 1
local next_version = string.format('%.0f', math.max(at_least, tonumber(now[1]) * 1000000 + tonumber(now[2])))
local at = 8
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[3], 'version', next_version, 'is_live', '1', 'commit_id', ARGV[4])
for argument = at + puts, at + puts + deletes - 1 do redis.call('HDEL', KEYS[4], ARGV[argument]) end
for argument = at, at + puts - 1, 2 do redis.call('HSET', KEYS[4], ARGV[argument], ARGV[argument + 1]) end
at = at + puts + deletes
for argument = at, at + events - 1 do redis.call('RPUSH', KEYS[5], ARGV[argument]) end
return {'written', next_version}
"""


class RedisStore(Store):
    """Records in one database of one server. Connects with the first command."""

    def __init__(self, url: RedisUrl) -> None:
        self._prefix = url.prefix
        self._client = RedisClient(url)

    @property
    def label(self) -> str:
        return self._client.label

    def __repr__(self) -> str:
        return f"RedisStore('{self.label}')"

    def commit(
        self,
        job: str,
        *,
        expected_version: int,
        puts: Mapping[str, str],
        deletes: Collection[str] = (),
        events: Sequence[str] = (),
        commit_id: str | None = None,
    ) -> int:
        found, value = self._run_commit(
            job,
            expected_version,
            commit_id or new_commit_id(),
            2 * len(puts),
            len(deletes),
            len(events),
            *chain.from_iterable(puts.items()),
            *deletes,
            *events,
        )
        if found == "conflict":
            raise version_conflict(job, expected=expected_version, found=int(value))
        return int(value)

    def load(self, job: str) -> StoredJob | None:
        head, documents, last_seq = self._read(
            ("HMGET", self._key("head", job), "version", "is_live", "commit_id"),
            ("HGETALL", self._key("documents", job)),
            ("LLEN", self._key("journal", job)),
        )
        version, is_live, commit_id = head
        if is_live != "1":
            return None
        if not version or not version.isdecimal():
            raise self._foreign(self._key("head", job))
        return StoredJob(version=int(version), documents=documents, last_seq=last_seq, commit_id=commit_id or "")

    def journal(self, job: str, after_seq: int = 0, limit: int | None = None) -> list[StoredEvent]:
        if limit is not None and limit <= 0:
            return []
        start = max(0, after_seq)
        last = -1 if limit is None else start + limit - 1
        (texts,) = self._read(("LRANGE", self._key("journal", job), start, last))
        return [StoredEvent(seq=seq, text=text) for seq, text in enumerate(texts, start + 1)]

    def jobs(self) -> list[str]:
        (names,) = self._read(("SMEMBERS", self._key("jobs")))
        return sorted(names)

    def warnings(self) -> list[Verdict]:
        facts = {**self._client.run("INFO", "persistence"), **self._client.run("INFO", "memory")}
        found = []
        if not facts.get("aof_enabled"):
            seen = f"the store {self.label} has no append-only file: a restart of the server loses records"
            found.append(warning("store", seen, "set 'appendonly yes' in its configuration"))
        if str(facts.get("maxmemory_policy", "noeviction")) != "noeviction" and facts.get("maxmemory"):
            policy = facts["maxmemory_policy"]
            seen = f"the store {self.label} may drop records when its memory is full (maxmemory-policy '{policy}')"
            found.append(warning("store", seen, "set 'maxmemory-policy noeviction'"))
        return found

    def close(self) -> None:
        self._client.close()

    def _key(self, *words: str) -> str:
        return self._prefix + ":".join(words)

    def _read(self, *commands: tuple[str | int, ...]) -> list[Any]:
        """The replies to the commands, which run as one transaction."""
        schema, *answers = self._client.run_all(("GET", self._key("schema")), *commands)
        self._check_schema(schema)
        return answers

    def _run_commit(self, job: str, *arguments: str | int) -> tuple[str, str]:
        """'written' or 'conflict', and the job's version."""
        keys = [
            self._key("schema"),
            self._key("jobs"),
            self._key("head", job),
            self._key("documents", job),
            self._key("journal", job),
        ]
        found, value = self._client.run("EVAL", _COMMIT, len(keys), *keys, SCHEMA, job, *arguments)
        if found == "schema":
            self._check_schema(value)
        if found == "foreign":
            raise self._foreign(value)
        return found, value

    def _check_schema(self, found: str | None) -> None:
        if found is None:
            return
        if not found.isdecimal() or not int(found):
            raise self._foreign(self._key("schema"))
        check_schema(int(found), SCHEMA, f"store {self.label}")

    def _foreign(self, key: str) -> SchemaError:
        return SchemaError(
            f"the store {self.label} holds something under '{key}' that dlrl did not write; it was left as it is; "
            "choose another database, or another prefix with '?prefix='"
        )
