"""The Lua script of a commit, which the server runs as one step.

A script reaches the append-only file as one block. A script that fails in the middle is not undone: so everything
that could be refused is checked before the first write.
"""

from __future__ import annotations

# KEYS: schema, jobs, and head, documents and journal of the job. ARGV: schema, job, expected version, commit id, then
# three numbers of arguments, then the arguments: keys and texts of documents to put, keys to delete, events.
# Versions are times in microseconds: a server that crashes may lose what it confirmed last, and a version that an old
# writer still expects must not come again. A head whose is_live is not 1 is that of a job that an earlier dlrl deleted.
COMMIT = """
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
